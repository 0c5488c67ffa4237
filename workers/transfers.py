"""What a run needs from the object store, and what it leaves there, with patience.

An outage costs a run time, and neither a try nor a second run: what cannot be fetched or stored is tried again in place
until it can be, or the run is to stop, or patience is at its end. A wish to stop is heard between any two pieces of a
transfer, too. Other bytes than the announced ones are fetched anew before they are taken for what is stored; the cache
hands out none of them.
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING
from uuid import UUID

from jobs.errors import ArtifactHashMismatch, ArtifactNotUploaded, PunctualError, StorageUnavailable
from jobs.protocol import Hold, StoredOutput
from workers.artifact_cache import ArtifactCache
from workers.control_plane import ControlPlane
from workers.errors import ControlPlaneRefused, ControlPlaneUnavailable, TransferStopped
from workers.held_runs import HeldRun

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

logger = logging.getLogger(__name__)

# The store is away for every worker alike, and a run that may be claimed only once can wait nowhere else.
FETCH_FOR_SECONDS = 150.0
# A disk that is full is full here only.
KEEP_FOR_SECONDS = 15.0
# The program ran: to run it again for the sake of its outputs would be worse than to wait.
STORE_FOR_SECONDS = 600.0
# Of each try: the store is silent for no longer, so that one which took more time brought something.
TRY_SECONDS = 30.0
AGAIN_SECONDS = 0.5
MAX_AGAIN_SECONDS = 2.0
# So often in a row other bytes came, or none were there, before it is taken for the truth.
MISMATCHES = 3
READ_BYTES = 64 * 1024


class Patience:
    """What all transfers of a run in one direction have together: the time of tries that failed, and of the pauses."""

    def __init__(self, held: HeldRun, ends_at: float | None = None) -> None:
        """`ends_at` on the monotonic clock nothing is of use any more."""
        self._held = held
        self._ends_at = ends_at
        self._spent = 0.0
        self._pause = AGAIN_SECONDS

    def stop_asked(self) -> bool:
        return self._held.stop_reason is not None

    def is_over(self) -> bool:
        return self.stop_asked() or (self._ends_at is not None and time.monotonic() >= self._ends_at)

    def wait(self, seconds: float, error: Exception, began: float) -> None:
        """After a try: returns when it is time for another; raises the error when there was time enough."""
        if self.stop_asked():
            raise TransferStopped from error
        self._spent += min(time.monotonic() - began, TRY_SECONDS)
        if self._spent >= seconds or self.is_over():
            raise error
        time.sleep(self._pause)
        self._spent += self._pause
        self._pause = min(2 * self._pause, MAX_AGAIN_SECONDS)


class _Stoppable(io.RawIOBase):
    """A file that cannot be read any more once the run is to stop; closing it closes nothing."""

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
    patience: Patience,
    execution_id: UUID,
    *,
    sha256: str,
    size: int,
) -> int:
    """A descriptor of the verified bytes."""
    mismatches = 0
    while True:
        problem: PunctualError
        began, seconds = time.monotonic(), FETCH_FOR_SECONDS
        try:
            return cache.open(sha256, size, control_plane.read_artifact, patience.is_over)
        except TransferStopped as error:
            if patience.stop_asked():
                raise
            raise StorageUnavailable("The deadline came before all that the program needs.") from error
        except (ArtifactHashMismatch, ArtifactNotUploaded) as error:
            mismatches += 1
            if mismatches >= MISMATCHES:
                raise type(error)(_say_wrong(error, sha256)) from error
            problem = error
        except StorageUnavailable as error:
            problem = error
        except OSError as error:
            problem = StorageUnavailable(f"The worker cannot keep artifacts on its disk: {error.strerror or error}.")
            seconds = KEEP_FOR_SECONDS
        logger.warning("An artifact of %s cannot be fetched, trying again: %s", execution_id, problem)
        patience.wait(seconds, problem, began)


def store_output(
    control_plane: ControlPlane, patience: Patience, hold: Hold, output: StoredOutput, body: IO[bytes]
) -> None:
    stoppable = io.BufferedReader(_Stoppable(body, patience.is_over), READ_BYTES)
    while True:
        began = time.monotonic()
        try:
            control_plane.store_output(hold, output, stoppable)
        except ControlPlaneRefused:
            raise
        except (StorageUnavailable, ControlPlaneUnavailable) as error:
            logger.warning("An output of %s cannot be stored, trying again: %s", hold.execution_id, error)
            patience.wait(STORE_FOR_SECONDS, error, began)
        else:
            return


def _say_wrong(error: PunctualError, sha256: str) -> str:
    if isinstance(error, ArtifactNotUploaded):
        return f"The object store holds no bytes with the SHA-256 {sha256}; upload the artifact again."
    return (
        f"What the object store gave for the SHA-256 {sha256} had another one, {MISMATCHES} times in a row; nothing of"
        " it was run. Upload the artifact again."
    )
