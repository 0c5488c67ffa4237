"""Errors of the sandbox; every message is one sentence with what to do."""


class SandboxUnavailable(Exception):
    """This host cannot isolate programs, so its workers must not run any."""


class SandboxError(Exception):
    """One sandbox could not be built; its program did not run."""
