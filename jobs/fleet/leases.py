"""Registration and leases: which incarnation of a worker may write, and until when.

Only Postgres decides whether a lease is alive, and a lease that has ended is never revived. Registering starts a new
incarnation and reclaims what older ones hold; the reaper reclaims rows that are locked just then, and what takes more
than a few seconds.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, transaction

from jobs.audit.log import record_change
from jobs.db import sql
from jobs.db.clock import database_now
from jobs.db.row_isolation import isolated
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.errors import WorkerLeaseLost, WorkerNameTaken
from jobs.domain.messages import Transport
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import Registration, StopOrder, WorkerOffer, WorkerUsage
from jobs.execution import completion, transitions
from jobs.fleet.admission import admit_worker, record_admission
from jobs.fleet.reclaiming import reclaim_executions
from jobs.models import LIVE_STATUSES, Worker, WorkerStatus
from jobs.models.ids import new_id

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Renewal:
    loses: bool  # executions that it no longer lists, or that an earlier incarnation held


def register_worker(offer: WorkerOffer, *, token_id: UUID | None = None) -> Registration:
    """Start a new incarnation of the worker. `token_id`: of a REST worker; None: it connects to Postgres."""
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        before = admit_worker(token_id, offer.name) if token_id else {}
        registered = sql.fetch(
            "register_worker",
            {
                "id": new_id(),
                "name": offer.name,
                "instance": offer.instance,
                "pool": offer.pool,
                "host": offer.host,
                "lease_seconds": settings.PUNCTUAL_LEASE_SECONDS,
                "capabilities": list(offer.capabilities),
                "details": json.dumps(dict(offer.details)),
                "slots": offer.slots,
                "cpu": offer.cpu,
                "memory_mb": offer.memory_mb,
                "disk_mb": offer.disk_mb,
                "transport": Transport.REST if token_id else Transport.CELERY,
                "token_id": token_id,
                "refusal": offer.refusal,
                "resources": json.dumps(dict(offer.resources)),
            },
            Registration,
        )
        if not registered:
            raise WorkerNameTaken(_explain_name_taken(offer))
        registration = registered[0]
        if token_id:
            record_admission(registration.worker_id, token_id, before)
    _reclaim_executions(registration.worker_id, registration.incarnation)
    return registration


def _explain_name_taken(offer: WorkerOffer) -> str:
    """Say what the operator can do; only the name of a worker that is gone can be reused."""
    own_name = "give this one a name of its own (PUNCTUAL_WORKER_NAME)"
    worker = Worker.objects.filter(name=offer.name).first()
    if worker is None or (worker.status in LIVE_STATUSES and worker.lease_until > database_now()):
        return f"Another worker called {offer.name} is alive: stop it and wait for its lease to end, or {own_name}."
    if worker.token_id is None:
        return f"The name {offer.name} belongs to a worker that needs no token: {own_name}."
    return (
        f"The name {offer.name} belongs to a worker that left and whose token is another owner's or of another pool:"
        f" use a token of the same owner and pool, have that token revoked, or {own_name}."
    )


def _reclaim_executions(worker_id: UUID, keep_incarnation: int, reason: Reason = Reason.LOST) -> None:
    """Reclaim after the commit; an error is logged, since it must not prevent the registration."""
    with isolated(f"Reclaiming the executions of worker {worker_id}"):
        reclaim_executions(worker_id, keep_incarnation, reason=reason)


def renew_lease(
    registration: Registration,
    held: Iterable[tuple[UUID, int]],
    usage: WorkerUsage | None = None,
    *,
    lease_seconds: float = 0,
) -> list[StopOrder]:
    """Renew the lease and return the orders to stop; executions that the worker no longer lists are lost.

    `lease_seconds`: the length that the worker's guardian assumes. The worker gets at least that, even if leases are
    shorter now: the guardian lets its runs live until it learns of the change.
    """
    pairs = list(held)
    listed = [execution_id for execution_id, _ in pairs]
    # One statement and one commit: thousands of workers renew every few seconds.
    renewed = sql.fetch(
        "renew_lease",
        {
            "worker_id": registration.worker_id,
            "incarnation": registration.incarnation,
            "lease_seconds": max(lease_seconds, settings.PUNCTUAL_LEASE_SECONDS),
            "usage": None if usage is None else json.dumps(asdict(usage)),
            "listed": listed,
            "unlisted_seconds": limits.UNREPORTED_GRACE_SECONDS,
        },
        _Renewal,
    )
    if not renewed:
        raise WorkerLeaseLost
    orders = read_stop_orders(registration, pairs)
    # In a transaction of its own: an error or a lock on its executions must not cost the worker its lease.
    if renewed[0].loses:
        try:
            _lose_unreported(registration, listed)
        except DatabaseError:
            logger.exception("Reclaiming what worker %s no longer lists failed; retrying", registration.worker_id)
    return orders


def _lose_unreported(registration: Registration, listed: Sequence[UUID]) -> None:
    with transaction.atomic(), with_timeouts(statement_seconds=5, lock_seconds=3):
        lost = transitions.lose_executions({registration.worker_id: registration.incarnation}, listed=listed)
        completion.on_finished(lost)


def read_stop_orders(registration: Registration, held: Sequence[tuple[UUID, int]]) -> list[StopOrder]:
    """Return the attempts that the worker holds and must stop."""
    if not held:
        return []
    return sql.fetch(
        "read_stop_orders",
        {
            "worker_id": registration.worker_id,
            "incarnation": registration.incarnation,
            "execution_ids": [execution_id for execution_id, _ in held],
            "attempts": [attempt for _, attempt in held],
        },
        StopOrder,
    )


def drain_worker(registration: Registration) -> bool:
    """Let the worker finish its runs and place what waits on it elsewhere. False: it is gone."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        drains = _set_status(registration, WorkerStatus.DRAINING)
        if drains:
            transitions.release_queued()
    return drains


def request_drain(registration: Registration) -> bool:
    """Drain the worker for a user, and record that in the audit log."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        worker = Worker.objects.filter(id=registration.worker_id).first()
        drains = drain_worker(registration)
        if worker is not None and drains:
            before, after = {"status": worker.status}, {"status": WorkerStatus.DRAINING}
            record_change("worker.drained", worker, before=before, after=after)
    return drains


def deregister_worker(registration: Registration) -> None:
    """Take the worker offline, its runs being finished; release what it still holds without using up a try."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        leaves = _set_status(registration, WorkerStatus.OFFLINE)
    if leaves:
        _reclaim_executions(registration.worker_id, registration.incarnation + 1, Reason.RELEASED)


def _set_status(registration: Registration, status: WorkerStatus) -> bool:
    """Return False if a newer incarnation has registered or the worker is gone."""
    return bool(
        Worker.objects.filter(
            id=registration.worker_id,
            incarnation=registration.incarnation,
            status__in=LIVE_STATUSES,
        ).update(status=status)
    )
