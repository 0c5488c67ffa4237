"""What can go wrong for a worker and its runs; of a run that did not succeed the execution itself is the truth."""

from __future__ import annotations

from jobs.errors import PunctualError


class ExecutionFailed(PunctualError):
    """The program did not succeed; see the execution for why."""


class WorkerCannotStart(PunctualError):
    """The worker cannot run here."""


class ControlPlaneUnavailable(PunctualError):
    """The control plane does not answer; trying again."""


class TransferStopped(PunctualError):
    """The run is to stop, and wants nothing fetched or stored any more."""


class GuardianUnavailable(PunctualError):
    """There is no guardian to hand a sandbox to, so nothing may run."""


class ControlPlaneRefused(ControlPlaneUnavailable):
    """The control plane does not take this worker's token; give it another one."""
