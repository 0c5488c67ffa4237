"""Control plane client for workers that connect to Postgres and the object store themselves.

Every call releases its database connection when it returns. Retried calls survive an outage shorter than a lease; the
fence makes retries harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TypeVar
from uuid import UUID

from django.db import InterfaceError, OperationalError

from jobs.db.read_timeout import limit_read_time
from jobs.db.transactions import releasing_connection
from jobs.db.wakeups import wake_beat
from jobs.domain.worker_protocol import (
    AttemptFence,
    Chunk,
    ClaimedRun,
    MovedExecution,
    Progress,
    Registration,
    RunReport,
    StopOrder,
    StoredOutput,
    WorkerOffer,
    WorkerUsage,
)
from jobs.execution import attempts
from jobs.fleet import leases
from jobs.logs import store
from jobs.storage import s3
from workers.control_plane.retry import REPORT_FOR_SECONDS, RETRY_FOR_SECONDS, finish_idempotently, retry_until
from workers.errors import ControlPlaneUnavailable

Answer = TypeVar("Answer")

# Longer than the statement timeout of Postgres. A failed renewal must leave time for another before runs are stopped.
CALL_TIMEOUT_SECONDS = 15.0
RENEWAL_TIMEOUT_SECONDS = 6.0


class DirectControlPlane:
    lease_seconds = None  # these workers use PUNCTUAL_LEASE_SECONDS, as their guardian does

    def register(self, offer: WorkerOffer) -> Registration:
        return _retry_connected(lambda: leases.register_worker(offer))

    def renew(
        self, registration: Registration, held: Iterable[tuple[UUID, int]], usage: WorkerUsage | None = None
    ) -> list[StopOrder]:
        """Renew the lease, without a retry: the agent has its own renewal schedule."""
        with _database_connection(RENEWAL_TIMEOUT_SECONDS):
            return leases.renew_lease(registration, held, usage)

    def drain(self, registration: Registration) -> None:
        with _database_connection():
            leases.drain_worker(registration)
        wake_beat()

    def leave(self, registration: Registration) -> None:
        with _database_connection():
            leases.deregister_worker(registration)
        wake_beat()

    def claim(self, fence: AttemptFence) -> ClaimedRun:
        """Claim an attempt, without a retry: if the response is lost, the attempt is reaped or placed again."""
        with _database_connection():
            return attempts.claim_attempt(fence)

    def start(self, fence: AttemptFence, receipt: Mapping[str, object]) -> None:
        _retry_connected(lambda: attempts.start_attempt(fence, receipt))

    def log(self, fence: AttemptFence, chunks: Sequence[Chunk], progress: Progress | None = None) -> None:
        _retry_connected(lambda: store.append_chunks(fence, chunks, progress))

    def finish(self, fence: AttemptFence, report: RunReport) -> MovedExecution | None:
        """Finish the attempt; return None if an earlier try succeeded but its response was lost."""
        return _retry_connected(finish_idempotently(lambda: attempts.finish_attempt(fence, report)), REPORT_FOR_SECONDS)

    def read_artifact(self, sha256: str) -> Iterator[bytes]:
        """Read an artifact, without a retry: the caller starts over."""
        return s3.read_artifact(sha256)

    def store_output(self, fence: AttemptFence, output: StoredOutput, body: IO[bytes]) -> None:
        """Store an output, without a retry: the caller has its own retry budget."""
        body.seek(0)
        key = s3.output_key(fence.execution_id, fence.attempt, output.sha256)
        s3.put_output(key, output.sha256, output.size, body)


def _retry_connected(call: Callable[[], Answer], seconds: float = RETRY_FOR_SECONDS) -> Answer:
    def connected() -> Answer:
        with _database_connection():
            return call()

    return retry_until(connected, seconds)


@contextmanager
def _database_connection(answer_seconds: float = CALL_TIMEOUT_SECONDS) -> Iterator[None]:
    """Open a connection for one call; a database outage or timeout becomes ControlPlaneUnavailable."""
    try:
        with limit_read_time(answer_seconds), releasing_connection():
            yield
    except (OperationalError, InterfaceError) as error:
        raise ControlPlaneUnavailable(f"The control plane does not answer: {error}") from error
