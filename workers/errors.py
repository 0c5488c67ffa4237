"""Errors of workers and their runs."""

from __future__ import annotations

from jobs.domain.errors import PunctualError


class ExecutionFailed(PunctualError):
    """The program did not succeed; see the execution for why."""


class WorkerCannotStart(PunctualError):
    """The worker cannot run here."""


class ControlPlaneUnavailable(PunctualError):
    """The control plane does not answer; the call can be retried."""


class RequestRejected(PunctualError):
    """The control plane rejected this call; a retry would be rejected too."""


class TransferStopped(PunctualError):
    """The run was asked to stop during a transfer."""


class GuardianUnavailable(PunctualError):
    """No guardian process is available, so no program may run."""


class WorkerTokenRejected(ControlPlaneUnavailable):
    """The control plane rejected this worker's token; give the worker a new one."""
