"""Work for a worker that asks over HTTP: the question waits until there is some, or an order to stop some.

A wake-up through Redis ends the wait at once; without Redis a look at the database does, a moment later. However many
workers ask, only so many questions wait in a process; the others are answered at once, so that the API never starves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from jobs import conf, sql
from jobs.errors import StaleAttempt, WorkerLeaseLost
from jobs.models import Worker, WorkerStatus
from jobs.protocol import Claimed, Hold, Order, Registration
from jobs.services import attempts
from jobs.services.database import bounded, pooled
from jobs.services.leases import read_orders
from jobs.services.secret_grants import open_secrets
from jobs.services.tokens import in_force
from jobs.wakeups import WakeListener, worker_channel

Pair = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class Work:
    claimed: Sequence[Claimed] = ()
    orders: Sequence[Order] = ()
    online: bool = True  # False: it drains, and is given nothing new

    def __bool__(self) -> bool:
        return bool(self.claimed or self.orders)


@dataclass(frozen=True, slots=True)
class _Placed:
    execution_id: UUID
    attempt: int
    unanswered: bool


def await_work(registration: Registration, held: Sequence[Pair], *, seconds: float) -> Work:
    """What there is for the worker, as soon as there is something, and nothing when the time is over."""
    deadline = time.monotonic() + seconds
    first = take_work(registration, held)
    if first or seconds <= 0 or not _waiting().acquire(blocking=False):
        return first
    listener = WakeListener(settings.PUNCTUAL_REDIS_URL, channel=worker_channel(registration.worker_id))
    try:
        # Listening begins before the look that follows: nothing falls between them.
        listener.wait(0)
        while True:
            work = take_work(registration, held)
            left = deadline - time.monotonic()
            if work or left <= 0 or work.online != first.online:
                return work
            listener.wait(min(left, conf.CLAIM_LOOK_SECONDS))
    finally:
        _waiting().release()
        listener.close()


def take_work(registration: Registration, held: Sequence[Pair]) -> Work:
    """One look. `held`: what the worker knows that it holds."""
    with pooled():
        with transaction.atomic(), bounded(statement_seconds=5):
            online = _is_online(registration)
            orders = read_orders(registration, held)
            placed = sql.fetch(
                "placed_work",
                {
                    "worker_id": registration.worker_id,
                    "incarnation": registration.incarnation,
                    "listed": [execution_id for execution_id, _ in held],
                    "limit": conf.MAX_CLAIMS_AN_ANSWER,
                },
                _Placed,
            )
        taken = [_take(registration, each) for each in placed if online or each.unanswered]
    return Work([claimed for claimed in taken if claimed], orders, online)


def _take(registration: Registration, placed: _Placed) -> Claimed | None:
    hold = Hold(placed.execution_id, placed.attempt, registration.worker_id, registration.incarnation)
    if placed.unanswered:
        return next(map(open_secrets, sql.fetch("unanswered_claim", hold.parameters(), Claimed)), None)
    try:
        return attempts.claim_attempt(hold)
    except StaleAttempt:
        # Cancelled or taken back since we looked.
        return None


def _is_online(registration: Registration) -> bool:
    status = (
        Worker.objects.filter(id=registration.worker_id, incarnation=registration.incarnation, lease_until__gt=Now())
        # A token that was taken away while the question waited.
        .filter(in_force("token__"))
        .exclude(status__in=[WorkerStatus.LOST, WorkerStatus.OFFLINE])
        .values_list("status", flat=True)
        .first()
    )
    if status is None:
        raise WorkerLeaseLost
    return status != WorkerStatus.DRAINING


@lru_cache(maxsize=1)
def _waiting() -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(settings.PUNCTUAL_WAITING_CLAIMS)
