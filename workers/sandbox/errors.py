"""What can go wrong around a run; the message is always one sentence that says what to do."""


class SandboxUnavailable(Exception):
    """This host cannot isolate programs, so this worker must not run any."""


class SandboxError(Exception):
    """This one sandbox could not be built; nothing of the program ran."""
