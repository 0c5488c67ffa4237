"""Transfers between a run and the object store, retried within a budget.

An outage delays a run but costs no attempt: a transfer is retried until it succeeds, the run is stopped, or the budget
is spent. A stop request interrupts a transfer between two pieces. Bytes with a wrong hash are fetched again before the
object counts as corrupt; the cache never returns them.
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING
from uuid import UUID

from jobs.domain.errors import ArtifactHashMismatch, ArtifactNotUploaded, PunctualError, StorageUnavailable
from jobs.domain.worker_protocol import AttemptFence, StoredOutput
from workers.control_plane.base import ControlPlane
from workers.errors import ControlPlaneUnavailable, TransferStopped, WorkerTokenRejected
from workers.lease.held_runs import HeldRun
from workers.run.artifact_cache import ArtifactCache

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

logger = logging.getLogger(__name__)

# An outage affects all workers alike, and a run that may be claimed only once cannot wait elsewhere.
FETCH_RETRY_SECONDS = 150.0
# A full disk affects this worker only.
DISK_RETRY_SECONDS = 15.0
# Waiting is better than running the program again only for its outputs.
STORE_RETRY_SECONDS = 600.0
# At most this much of a failed try counts: the client times out sooner, so a longer try made progress.
MAX_TRY_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 2.0
# After this many wrong or missing results in a row, the object counts as corrupt or missing.
MAX_MISMATCHES = 3
READ_BYTES = 64 * 1024


class RetryBudget:
    """Time for failed tries and pauses, shared by all transfers of a run in one direction."""

    def __init__(self, held: HeldRun, ends_at: float | None = None) -> None:
        """`ends_at`: when the transfers become useless, on the monotonic clock."""
        self._held = held
        self._ends_at = ends_at
        self._spent = 0.0
        self._pause = FIRST_PAUSE_SECONDS

    def stop_requested(self) -> bool:
        return self._held.stop_reason is not None

    def is_over(self) -> bool:
        return self.stop_requested() or (self._ends_at is not None and time.monotonic() >= self._ends_at)

    def wait(self, seconds: float, error: Exception, started: float) -> None:
        """Sleep before the next try; raise the error if failed tries have used up these seconds."""
        if self.stop_requested():
            raise TransferStopped from error
        self._spent += min(time.monotonic() - started, MAX_TRY_SECONDS)
        if self._spent >= seconds or self.is_over():
            raise error
        time.sleep(self._pause)
        self._spent += self._pause
        self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS)


class _StoppableReader(io.RawIOBase):
    """Reader that raises TransferStopped once the run is stopped; closing it does not close the file."""

    def __init__(self, file: IO[bytes], stopped: Callable[[], bool]) -> None:
        self._file = file
        self._stopped = stopped

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self._stopped():
            raise TransferStopped
        into = memoryview(buffer)
        piece = self._file.read(len(into))
        into[: len(piece)] = piece
        return len(piece)


def fetch_artifact(
    cache: ArtifactCache,
    control_plane: ControlPlane,
    budget: RetryBudget,
    execution_id: UUID,
    *,
    sha256: str,
    size: int,
) -> int:
    """Return a descriptor of the verified artifact."""
    mismatches = 0
    while True:
        problem: PunctualError
        started, seconds = time.monotonic(), FETCH_RETRY_SECONDS
        try:
            return cache.open(sha256, size, control_plane.read_artifact, budget.is_over)
        except TransferStopped as error:
            if budget.stop_requested():
                raise
            raise StorageUnavailable("The deadline passed before all files of the program were fetched.") from error
        except (ArtifactHashMismatch, ArtifactNotUploaded) as error:
            mismatches += 1
            if mismatches >= MAX_MISMATCHES:
                raise type(error)(_describe_mismatch(error, sha256)) from error
            problem = error
        except StorageUnavailable as error:
            problem = error
        except OSError as error:
            problem = StorageUnavailable(f"The worker cannot store artifacts on its disk: {error.strerror or error}.")
            seconds = DISK_RETRY_SECONDS
        logger.warning("An artifact of %s cannot be fetched, retrying: %s", execution_id, problem)
        budget.wait(seconds, problem, started)


def store_output(
    control_plane: ControlPlane, budget: RetryBudget, fence: AttemptFence, output: StoredOutput, body: IO[bytes]
) -> None:
    stoppable = io.BufferedReader(_StoppableReader(body, budget.is_over), READ_BYTES)
    while True:
        started = time.monotonic()
        try:
            control_plane.store_output(fence, output, stoppable)
        except WorkerTokenRejected:
            raise
        except (StorageUnavailable, ControlPlaneUnavailable) as error:
            logger.warning("An output of %s cannot be stored, retrying: %s", fence.execution_id, error)
            budget.wait(STORE_RETRY_SECONDS, error, started)
        else:
            return


def _describe_mismatch(error: PunctualError, sha256: str) -> str:
    if isinstance(error, ArtifactNotUploaded):
        return f"The object store holds no bytes with the SHA-256 {sha256}; upload the artifact again."
    return (
        f"The object store returned bytes with another hash for the SHA-256 {sha256}, {MAX_MISMATCHES} times in a row;"
        " they were not run. Upload the artifact again."
    )
