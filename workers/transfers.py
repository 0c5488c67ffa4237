"""What a run needs from the object store, and what it leaves there, with patience.

An outage costs a run time, and neither a try nor a second run: what cannot be fetched or stored is tried again in place
until it can be, or the run is to stop, or patience is at its end. Other bytes than the announced ones are fetched anew
before they are taken for what is stored; the cache hands out none of them.
"""

from __future__ import annotations

import logging
import time
from typing import IO
from uuid import UUID

from jobs.errors import ArtifactHashMismatch, ArtifactNotUploaded, PunctualError, StorageUnavailable
from jobs.protocol import Hold, StoredOutput
from workers.artifact_cache import ArtifactCache
from workers.control_plane import ControlPlane
from workers.errors import ControlPlaneRefused, ControlPlaneUnavailable, TransferStopped
from workers.held_runs import HeldRun

logger = logging.getLogger(__name__)

# The store is away for every worker alike, and a run that may be claimed only once can wait nowhere else.
FETCH_FOR_SECONDS = 150.0
# A disk that is full is full here only.
KEEP_FOR_SECONDS = 15.0
# The program ran: to run it again for the sake of its outputs would be worse than to wait.
STORE_FOR_SECONDS = 600.0
AGAIN_SECONDS = 0.5
MAX_AGAIN_SECONDS = 2.0
# So often in a row other bytes came, or none were there, before it is taken for the truth.
MISMATCHES = 3


class _Patience:
    """From the first failure on; a wish to stop ends it at once."""

    def __init__(self, held: HeldRun, ends_at: float | None = None) -> None:
        self._held = held
        self._ends_at = ends_at
        self._since: float | None = None
        self._pause = AGAIN_SECONDS

    def wait(self, seconds: float, error: Exception) -> None:
        """Returns when it is time to try again; raises the error when there was time enough."""
        if self._held.stop_reason is not None:
            raise TransferStopped from error
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        ends_at = self._since + seconds
        if now >= (ends_at if self._ends_at is None else min(ends_at, self._ends_at)):
            raise error
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, MAX_AGAIN_SECONDS)


def fetch_artifact(
    cache: ArtifactCache,
    control_plane: ControlPlane,
    held: HeldRun,
    execution_id: UUID,
    *,
    sha256: str,
    size: int,
    ends_at: float | None = None,
) -> int:
    """A descriptor of the verified bytes; `ends_at` on the monotonic clock it is of no use any more."""
    patience, mismatches = _Patience(held, ends_at), 0
    while True:
        problem: PunctualError
        seconds = FETCH_FOR_SECONDS
        try:
            return cache.open(sha256, size, control_plane.read_artifact, lambda: held.stop_reason is not None)
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
        patience.wait(seconds, problem)


def store_output(control_plane: ControlPlane, held: HeldRun, hold: Hold, output: StoredOutput, body: IO[bytes]) -> None:
    patience = _Patience(held)
    while True:
        try:
            control_plane.store_output(hold, output, body)
        except ControlPlaneRefused:
            raise
        except (StorageUnavailable, ControlPlaneUnavailable) as error:
            logger.warning("An output of %s cannot be stored, trying again: %s", hold.execution_id, error)
            patience.wait(STORE_FOR_SECONDS, error)
        else:
            return


def _say_wrong(error: PunctualError, sha256: str) -> str:
    if isinstance(error, ArtifactNotUploaded):
        return f"The object store holds no bytes with the SHA-256 {sha256}; upload the artifact again."
    return (
        f"What the object store gave for the SHA-256 {sha256} had another one, {MISMATCHES} times in a row; nothing of"
        " it was run. Upload the artifact again."
    )
