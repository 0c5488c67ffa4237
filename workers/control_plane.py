"""What a worker may say to the control plane: register, renew, claim, start, log, finish. There is no other way.

Every call gives its database connection back at once, and outlasts an outage that is shorter than a lease: a call that
was cut off halfway is made again, and the fence makes the repetition harmless.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Protocol, TypeVar
from uuid import UUID

from django.db import InterfaceError, OperationalError

from jobs import storage
from jobs.errors import StaleAttempt, StorageUnavailable
from jobs.services import attempts, leases, logs
from jobs.services.attempts import Report, StoredOutput
from jobs.services.database import pooled
from jobs.services.leases import Offer, Order, Registration
from jobs.services.logs import Chunk
from jobs.services.transitions import Claimed, Hold, Moved
from jobs.wakeups import wake_beat

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

RETRY_FOR_SECONDS = 20.0
RETRY_EVERY_SECONDS = 0.5


class ControlPlane(Protocol):
    def register(self, offer: Offer) -> Registration: ...
    def renew(self, registration: Registration, held: Iterable[tuple[UUID, int]]) -> list[Order]: ...
    def drain(self, registration: Registration) -> None: ...
    def leave(self, registration: Registration) -> None: ...
    def claim(self, hold: Hold) -> Claimed: ...
    def start(self, hold: Hold, receipt: Mapping[str, object]) -> None: ...
    def log(self, hold: Hold, chunks: Sequence[Chunk]) -> None: ...
    def finish(self, hold: Hold, report: Report) -> Moved | None: ...
    def read_artifact(self, sha256: str) -> Iterator[bytes]: ...
    def store_output(self, hold: Hold, output: StoredOutput, body: IO[bytes]) -> None: ...


class DirectControlPlane:
    """For workers that reach Postgres and the object store themselves."""

    def register(self, offer: Offer) -> Registration:
        return _persist(lambda: leases.register_worker(offer))

    def renew(self, registration: Registration, held: Iterable[tuple[UUID, int]]) -> list[Order]:
        """Not repeated here: whoever renews does so in a rhythm of its own."""
        with pooled():
            return leases.renew_lease(registration, held)

    def drain(self, registration: Registration) -> None:
        with pooled():
            leases.drain_worker(registration)

    def leave(self, registration: Registration) -> None:
        with pooled():
            leases.dismiss_worker(registration)

    def claim(self, hold: Hold) -> Claimed:
        """Not repeated: a claim whose answer was lost is lost with its lease or placed again, never run twice."""
        with pooled():
            return attempts.claim_attempt(hold)

    def start(self, hold: Hold, receipt: Mapping[str, object]) -> None:
        _persist(lambda: attempts.start_attempt(hold, receipt))

    def log(self, hold: Hold, chunks: Sequence[Chunk]) -> None:
        _persist(lambda: logs.append_chunks(hold, chunks))

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

        moved = _persist(finish)
        wake_beat()
        return moved

    def read_artifact(self, sha256: str) -> Iterator[bytes]:
        """Not repeated here: whoever reads starts over."""
        return storage.read_artifact(sha256)

    def store_output(self, hold: Hold, output: StoredOutput, body: IO[bytes]) -> None:
        key = storage.output_key(hold.execution_id, hold.attempt, output.sha256)
        _persist(lambda: storage.put_output(key, output.sha256, output.size, _rewound(body)))


def _rewound(body: IO[bytes]) -> IO[bytes]:
    body.seek(0)
    return body


def _persist(call: Callable[[], Answer]) -> Answer:
    deadline = time.monotonic() + RETRY_FOR_SECONDS
    while True:
        try:
            with pooled():
                return call()
        except (OperationalError, InterfaceError, StorageUnavailable) as error:
            if time.monotonic() >= deadline:
                raise
            logger.warning("The control plane does not answer, trying again: %s", error)
            time.sleep(RETRY_EVERY_SECONDS)
