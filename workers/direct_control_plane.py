"""The control plane of workers that reach Postgres and the object store themselves.

Every call gives its database connection back at once, and outlasts an outage that is shorter than a lease: a call that
was cut off halfway is made again, and the fence makes the repetition harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TypeVar
from uuid import UUID

from django.db import InterfaceError, InternalError, OperationalError

from jobs import storage
from jobs.errors import StaleAttempt
from jobs.patience import patience
from jobs.protocol import Chunk, Claimed, Hold, Moved, Offer, Order, Progress, Registration, Report, StoredOutput, Usage
from jobs.services import attempts, leases, logs
from jobs.services.database import abandon_if_closed_to_us, pooled
from jobs.wakeups import wake_beat
from workers.errors import ControlPlaneUnavailable
from workers.persistence import REPORT_FOR_SECONDS, RETRY_FOR_SECONDS, persist

Answer = TypeVar("Answer")

# Longer than Postgres itself allows each statement; a renewal must leave time for another before the runs are stopped.
ANSWER_SECONDS = 15.0
RENEWAL_SECONDS = 6.0


class DirectControlPlane:
    def register(self, offer: Offer) -> Registration:
        return _persist(lambda: leases.register_worker(offer))

    def renew(
        self, registration: Registration, held: Iterable[tuple[UUID, int]], usage: Usage | None = None
    ) -> list[Order]:
        """Not repeated here: whoever renews does so in a rhythm of its own."""
        with _connected(RENEWAL_SECONDS):
            return leases.renew_lease(registration, held, usage)

    def drain(self, registration: Registration) -> None:
        with _connected():
            leases.drain_worker(registration)
        wake_beat()

    def leave(self, registration: Registration) -> None:
        with _connected():
            leases.dismiss_worker(registration)
        wake_beat()

    def claim(self, hold: Hold) -> Claimed:
        """Not repeated: a claim whose answer was lost is lost with its lease or placed again, never run twice."""
        with _connected():
            return attempts.claim_attempt(hold)

    def start(self, hold: Hold, receipt: Mapping[str, object]) -> None:
        _persist(lambda: attempts.start_attempt(hold, receipt))

    def log(self, hold: Hold, chunks: Sequence[Chunk], progress: Progress | None = None) -> None:
        _persist(lambda: logs.append_chunks(hold, chunks, progress))

    def finish(self, hold: Hold, report: Report) -> Moved | None:
        """None when an earlier try had arrived though its answer had not."""
        tries = 0

        def finish() -> Moved | None:
            nonlocal tries
            tries += 1
            try:
                return attempts.finish_attempt(hold, report)
            except StaleAttempt:
                if tries > 1:
                    return None
                raise

        return _persist(finish, REPORT_FOR_SECONDS)

    def read_artifact(self, sha256: str) -> Iterator[bytes]:
        """Not repeated here: whoever reads starts over."""
        return storage.read_artifact(sha256)

    def store_output(self, hold: Hold, output: StoredOutput, body: IO[bytes]) -> None:
        """Not repeated here: whoever stores has a patience of its own."""
        body.seek(0)
        key = storage.output_key(hold.execution_id, hold.attempt, output.sha256)
        storage.put_output(key, output.sha256, output.size, body)


def _persist(call: Callable[[], Answer], seconds: float = RETRY_FOR_SECONDS) -> Answer:
    def connected() -> Answer:
        with _connected():
            return call()

    return persist(connected, seconds)


@contextmanager
def _connected(answer_seconds: float = ANSWER_SECONDS) -> Iterator[None]:
    """A database that is away, or frozen, or takes nothing for now, is a control plane that is away."""
    try:
        with patience(answer_seconds), pooled(), _abandoned_if_closed_to_us():
            yield
    except (OperationalError, InterfaceError) as error:
        raise ControlPlaneUnavailable(f"The control plane does not answer: {error}") from error


@contextmanager
def _abandoned_if_closed_to_us() -> Iterator[None]:
    try:
        yield
    except InternalError as error:
        if not abandon_if_closed_to_us(error):
            raise
        raise OperationalError(f"The database takes nothing at the moment: {error}") from error
