"""Claims of REST workers: a request waits until there is work, or an order to stop some.

A wake-up through Redis ends the wait at once; without Redis the next read for all waiting claims of the process does, a
moment later. A process lets a limited number of claims wait; the others get their response at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from jobs.access.secret_grants import open_secrets
from jobs.access.tokens import in_force_filter
from jobs.access.waiter_pool import WaiterPool
from jobs.db import sql
from jobs.db.transactions import releasing_connection, with_timeouts
from jobs.db.waiting import Pause, Steps
from jobs.db.wakeups import worker_channel
from jobs.domain import limits
from jobs.domain.errors import StaleAttempt, WorkerLeaseLost
from jobs.domain.worker_protocol import AttemptFence, ClaimedRun, Registration, StopOrder
from jobs.execution import attempts
from jobs.fleet.leases import read_stop_orders
from jobs.fleet.waiting_claims import WaitingClaim, waiting_claims
from jobs.models import ApiToken, Worker, WorkerStatus

HeldAttempt = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class Work:
    claimed: Sequence[ClaimedRun] = ()
    orders: Sequence[StopOrder] = ()
    online: bool = True  # False: it is draining and gets nothing new

    def __bool__(self) -> bool:
        return bool(self.claimed or self.orders)


@dataclass(frozen=True, slots=True)
class _PlacedExecution:
    execution_id: UUID
    attempt: int
    unanswered: bool


def await_work(
    registration: Registration, held: Sequence[HeldAttempt], *, seconds: float, token: ApiToken, digest: str
) -> Steps[Work]:
    """Return work or orders as soon as there are any, and empty work when the time is up.

    `token`: the valid token of the worker's request; `digest`: of its secret.
    """
    deadline = time.monotonic() + seconds
    idle = find_idle_claim(registration.worker_id, digest)
    initial = idle if idle is not None and idle.registration == registration else claim_work(registration, held)
    if isinstance(initial, Work) and initial:
        return initial
    if seconds <= 0 or not claim_waiter_pool().acquire(registration.worker_id):
        return initial if isinstance(initial, Work) else claim_work(registration, held)
    online = initial.online
    looks, claim = waiting_claims(), WaitingClaim(registration, held, token, digest, online)
    channel = worker_channel(registration.worker_id)
    looks.enter(claim)
    try:
        # Listening begins before the next read: no change between them is missed.
        yield (pause := Pause(channel, 0, looks))
        while True:
            if pause.woken:
                work = claim_work(registration, held)
                if work or work.online != online:
                    looks.forget(registration.worker_id)
                    return work
            if (left := deadline - time.monotonic()) <= 0:
                return Work(online=online)
            yield (pause := Pause(channel, left, looks))
    finally:
        looks.leave(claim)
        claim_waiter_pool().release(registration.worker_id)


def find_idle_claim(worker_id: UUID, digest: str) -> WaitingClaim | None:
    """Return what the last claim of this worker with this token was, if it was valid and idle a moment ago."""
    idle = waiting_claims().find_idle(worker_id)
    return idle if idle is not None and idle.digest == digest else None


def claim_work(registration: Registration, held: Sequence[HeldAttempt]) -> Work:
    """Claim the executions placed on the worker now. `held`: the attempts that the worker knows it holds."""
    with releasing_connection():
        with transaction.atomic(), with_timeouts(statement_seconds=5):
            online = _is_online(registration)
            orders = read_stop_orders(registration, held)
            placed = sql.fetch(
                "find_placed_work",
                {
                    "worker_id": registration.worker_id,
                    "incarnation": registration.incarnation,
                    "listed": [execution_id for execution_id, _ in held],
                    "limit": limits.MAX_CLAIMS_PER_RESPONSE,
                },
                _PlacedExecution,
            )
        claims = [_claim(registration, each) for each in placed if online or each.unanswered]
    return Work([claimed for claimed in claims if claimed], orders, online)


def _claim(registration: Registration, placed: _PlacedExecution) -> ClaimedRun | None:
    fence = AttemptFence(placed.execution_id, placed.attempt, registration.worker_id, registration.incarnation)
    if placed.unanswered:
        return next(map(open_secrets, sql.fetch("reread_claim", fence.parameters(), ClaimedRun)), None)
    try:
        return attempts.claim_attempt(fence)
    except StaleAttempt:
        # Cancelled or reclaimed since it was read.
        return None


def _is_online(registration: Registration) -> bool:
    status = (
        Worker.objects.filter(id=registration.worker_id, incarnation=registration.incarnation, lease_until__gt=Now())
        # The token may have been revoked while the request waited.
        .filter(in_force_filter("token__"))
        .exclude(status__in=[WorkerStatus.LOST, WorkerStatus.OFFLINE])
        .values_list("status", flat=True)
        .first()
    )
    if status is None:
        raise WorkerLeaseLost
    return status != WorkerStatus.DRAINING


@lru_cache(maxsize=1)
def claim_waiter_pool() -> WaiterPool:
    return WaiterPool(settings.PUNCTUAL_WAITING_CLAIMS, limits.WAITING_CLAIMS_PER_WORKER)
