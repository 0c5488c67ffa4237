"""Control plane client for workers that connect to Postgres and the object store themselves.

Every call releases its database connection when it returns. Retried calls survive an outage shorter than a lease; the
fence makes retries harmless.

Claims and successes that come at about the same time share a statement and a commit. Each is answered after the commit,
and one that the statement leaves out is tried separately: it may be stale, wait for a lock, or need follow-ups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import IO, TypeVar
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from jobs.db.read_timeout import limit_read_time
from jobs.db.transactions import releasing_connection
from jobs.db.wakeups import wake_beat
from jobs.domain.errors import StaleAttempt
from jobs.domain.worker_protocol import (
    AttemptFence,
    Chunk,
    ClaimedRun,
    MovedExecution,
    Progress,
    Registration,
    RunReport,
    RunStart,
    StopOrder,
    StoredOutput,
    WorkerOffer,
    WorkerUsage,
)
from jobs.execution import attempts
from jobs.execution.attempts import FinishedRun
from jobs.fleet import leases
from jobs.logs import store
from jobs.storage import s3
from workers.control_plane.batcher import Batcher
from workers.control_plane.deferred_starts import DeferredStarts
from workers.control_plane.retry import REPORT_FOR_SECONDS, RETRY_FOR_SECONDS, finish_idempotently, retry_until
from workers.errors import ControlPlaneUnavailable

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")
_BatchCall = AttemptFence | tuple[AttemptFence, RunReport]

# Longer than the statement timeout of Postgres. A failed renewal must leave time for another before runs are stopped.
CALL_TIMEOUT_SECONDS = 15.0
RENEWAL_TIMEOUT_SECONDS = 6.0
BATCH_CALLS = 64
# A busy worker waits this long for more calls; one that did nothing for as long does not wait.
BATCH_PAUSE_SECONDS = 0.005


class DirectControlPlane:
    lease_seconds = None  # these workers use PUNCTUAL_LEASE_SECONDS, as their guardian does

    def __init__(self, on_stale: Callable[[AttemptFence], None] = lambda fence: None) -> None:
        """`on_stale`: called with a run that no longer belongs to this worker."""
        self.on_stale = on_stale
        self._batcher: Batcher[_BatchCall, ClaimedRun | MovedExecution] = Batcher(
            self._send_batch, most=BATCH_CALLS, pause_seconds=BATCH_PAUSE_SECONDS
        )
        self._starts = DeferredStarts(self._store_starts)

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
        claimed = self._batcher.call(fence)
        if isinstance(claimed, ClaimedRun):
            return claimed
        with _database_connection():
            return attempts.claim_attempt(fence)

    def start(self, fence: AttemptFence, receipt: Mapping[str, object]) -> None:
        """Return at once; `on_stale` is called if the start is rejected."""
        self._starts.add(fence, receipt)

    def log(self, fence: AttemptFence, chunks: Sequence[Chunk], progress: Progress | None = None) -> None:
        _retry_connected(lambda: store.append_chunks(fence, chunks, progress))

    def finish(self, fence: AttemptFence, report: RunReport) -> MovedExecution | None:
        """Finish the attempt; return None if an earlier try succeeded but its response was lost."""
        try:
            return retry_until(finish_idempotently(lambda: self._finish_once(fence, report)), REPORT_FOR_SECONDS)
        finally:
            self._starts.forget(fence)

    def _finish_once(self, fence: AttemptFence, report: RunReport) -> MovedExecution:
        if attempts.is_plain_success(report):
            moved = self._batcher.call((fence, report))
            if isinstance(moved, MovedExecution):
                return moved
        with _database_connection():
            return attempts.finish_with_follow_ups(FinishedRun(fence, report, self._starts.find(fence)))

    def _send_batch(self, calls: Sequence[_BatchCall]) -> list[ClaimedRun | MovedExecution | None]:
        """Answer None to what must be tried separately."""
        latest = _find_latest(map(_read_fence, calls))
        shared = [call for call in calls if _read_fence(call) in latest]
        fences = [call for call in shared if isinstance(call, AttemptFence)]
        ended = [
            FinishedRun(*call, self._starts.find(call[0])) for call in shared if not isinstance(call, AttemptFence)
        ]
        try:
            with _database_connection(), transaction.atomic() if fences and ended else nullcontext():
                moved = attempts.finish_at_once(ended)
                claimed = attempts.claim_at_once(fences)
        except DatabaseError as error:
            # One of them may be at fault, and must not fail the others.
            logger.warning("%d claims and successes did not share a transaction: %s", len(calls), error)
            return [None] * len(calls)
        claims = {run.execution_id: run for run in claimed}
        moves = {execution.execution_id: execution for execution in moved}
        return [
            (claims if isinstance(call, AttemptFence) else moves).get(fence.execution_id) if fence in latest else None
            for call, fence in zip(calls, map(_read_fence, calls), strict=True)
        ]

    def _store_starts(self, starts: Mapping[AttemptFence, RunStart]) -> None:
        latest = _find_latest(starts)
        with _database_connection():
            stored = set(attempts.start_at_once({fence: starts[fence] for fence in latest}))
        for fence, start in starts.items():
            is_stored = fence in latest and fence.execution_id in stored
            if is_stored or self._starts.find(fence) is None:
                continue  # stored, or its end stored it meanwhile
            try:
                with _database_connection():
                    attempts.start_attempt(fence, start.receipt, seconds_ago=start.seconds_ago)
            except StaleAttempt:
                self.on_stale(fence)

    def read_artifact(self, sha256: str) -> Iterator[bytes]:
        """Read an artifact, without a retry: the caller starts over."""
        return s3.read_artifact(sha256)

    def store_output(self, fence: AttemptFence, output: StoredOutput, body: IO[bytes]) -> None:
        """Store an output, without a retry: the caller has its own retry budget."""
        body.seek(0)
        key = s3.output_key(fence.execution_id, fence.attempt, output.sha256)
        s3.put_output(key, output.sha256, output.size, body)


def _read_fence(call: _BatchCall) -> AttemptFence:
    return call if isinstance(call, AttemptFence) else call[0]


def _find_latest(fences: Iterable[AttemptFence]) -> set[AttemptFence]:
    """Return the last attempt of each execution: a statement answers by execution, so an earlier one is tried apart."""
    return set({fence.execution_id: fence for fence in sorted(fences, key=lambda fence: fence.attempt)}.values())


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
