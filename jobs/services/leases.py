"""A worker's standing: who it is, and until when its word counts.

The lease is Postgres's alone. Registering takes a new incarnation, which at once takes away what older ones held; what
somebody has locked just then the reaper takes, a second later. An ended lease is never revived.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, transaction

from jobs import sql
from jobs.errors import WorkerLeaseLost, WorkerNameTaken
from jobs.messages import Transport
from jobs.models import LIVING, Worker, WorkerStatus
from jobs.models.ids import new_id
from jobs.protocol import Offer, Order, Registration, Usage
from jobs.services import endings, transitions
from jobs.services.audit_trail import record
from jobs.services.database import bounded
from jobs.states import Reason

logger = logging.getLogger(__name__)


def register_worker(offer: Offer, *, token_id: UUID | None = None) -> Registration:
    """`token_id`: what a worker that speaks over HTTP came with; None: one that reaches Postgres itself."""
    with transaction.atomic(), bounded(statement_seconds=10):
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
            raise WorkerNameTaken(
                f"Another worker called {offer.name} is alive, or belongs to another token;"
                " give this one a name of its own (PUNCTUAL_WORKER_NAME)."
            )
        registration = registered[0]
        lost = transitions.lose_held({registration.worker_id: registration.incarnation})
        endings.settle_endings(lost)
    return registration


def renew_lease(
    registration: Registration, held: Iterable[tuple[UUID, int]], usage: Usage | None = None
) -> list[Order]:
    """Renews, and answers with what the worker holds and must stop; what it no longer lists is lost."""
    pairs = list(held)
    identity = {"worker_id": registration.worker_id, "incarnation": registration.incarnation}
    with transaction.atomic(), bounded(statement_seconds=5, lock_seconds=3):
        told = {
            "lease_seconds": settings.PUNCTUAL_LEASE_SECONDS,
            "usage": None if usage is None else json.dumps(asdict(usage)),
        }
        if not sql.execute("renew_lease", identity | told):
            raise WorkerLeaseLost
        orders = read_orders(registration, pairs)
    # Apart, and whatever becomes of it: nothing that others do to its executions may cost a worker its lease.
    try:
        _lose_unlisted(registration, [execution_id for execution_id, _ in pairs])
    except DatabaseError:
        logger.exception("What worker %s no longer lists could not be taken back yet", registration.worker_id)
    return orders


def _lose_unlisted(registration: Registration, listed: Sequence[UUID]) -> None:
    with transaction.atomic(), bounded(statement_seconds=5, lock_seconds=3):
        lost = transitions.lose_unlisted(registration.worker_id, registration.incarnation, listed)
        endings.settle_endings(lost)


def read_orders(registration: Registration, held: Sequence[tuple[UUID, int]]) -> list[Order]:
    """What the worker holds and must stop."""
    if not held:
        return []
    return sql.fetch(
        "renewal_orders",
        {
            "worker_id": registration.worker_id,
            "incarnation": registration.incarnation,
            "execution_ids": [execution_id for execution_id, _ in held],
            "attempts": [attempt for _, attempt in held],
        },
        Order,
    )


def drain_worker(registration: Registration) -> bool:
    """It finishes what it holds and gets nothing new; what waits on it goes elsewhere at once. False: it is gone."""
    with transaction.atomic(), bounded(statement_seconds=5):
        drains = _set_status(registration, WorkerStatus.DRAINING)
        if drains:
            transitions.release_queued()
    return drains


def order_drain(registration: Registration) -> bool:
    """The same, because somebody else than the worker wants it."""
    with transaction.atomic(), bounded(statement_seconds=5):
        worker = Worker.objects.filter(id=registration.worker_id).first()
        drains = drain_worker(registration)
        if worker is not None and drains:
            before, after = {"status": worker.status}, {"status": WorkerStatus.DRAINING}
            record("worker.drained", worker, before=before, after=after)
    return drains


def dismiss_worker(registration: Registration) -> None:
    """It says goodbye, its runs have ended; what it still holds is taken back, and no try is used up."""
    with transaction.atomic(), bounded(statement_seconds=5):
        if _set_status(registration, WorkerStatus.OFFLINE):
            endings.settle_endings(transitions.lose_held({registration.worker_id: None}, reason=Reason.RELEASED))


def _set_status(registration: Registration, status: WorkerStatus) -> bool:
    """False if a newer incarnation has the word, or the worker is gone already."""
    return bool(
        Worker.objects.filter(
            id=registration.worker_id,
            incarnation=registration.incarnation,
            status__in=LIVING,
        ).update(status=status)
    )
