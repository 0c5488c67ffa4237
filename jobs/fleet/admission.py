"""Admission of REST workers: a token admits a limited number at a time, and the audit log records each.

A worker that registers again under its name is the same worker; one that left or lost its lease no longer counts.
"""

from __future__ import annotations

from uuid import UUID

from django.db.models.functions import Now

from jobs.audit.actor import current_actor
from jobs.audit.log import record_change
from jobs.audit.snapshots import Snapshot
from jobs.domain.errors import WorkerLimitReached
from jobs.models import LIVE_STATUSES, ApiToken, Worker

_AUDITED_FIELDS = ("pool", "host", "slots", "cpu", "memory_mb", "disk_mb", "resources", "address")


def admit_worker(token_id: UUID, name: str) -> Snapshot:
    """Return the audit snapshot of the worker with this name; raise if the token's other workers use up its limit.

    Call it in the transaction that registers the worker: the lock on the token serialises registrations.
    """
    token = ApiToken.objects.select_for_update(no_key=True).get(id=token_id)
    others = Worker.objects.filter(token=token, status__in=LIVE_STATUSES, lease_until__gt=Now()).exclude(name=name)
    names = list(others.order_by("name").values_list("name", flat=True)[: token.max_workers])
    if len(names) >= token.max_workers:
        listed = f"{names[0]} is alive" if len(names) == 1 else f"{names[0]} and {len(names) - 1} others are alive"
        raise WorkerLimitReached(
            f"The token {token.name} is for {token.max_workers} worker{'s'[: token.max_workers > 1]} at a time, and"
            f" {listed}: stop one, give this worker a token of its own, or make a token with a larger max_workers."
        )
    known = Worker.objects.filter(name=name).first()
    return {} if known is None else _snapshot(known)


def record_admission(worker_id: UUID, token_id: UUID, before: Snapshot) -> None:
    """Record a new or changed worker in the audit log; a mere restart leaves no entry."""
    worker = Worker.objects.get(id=worker_id)
    worker.address = current_actor().address
    worker.save(update_fields=["address"])
    owner_id = ApiToken.objects.values_list("owner_id", flat=True).get(id=token_id)
    record_change("worker.registered", worker, owner_id=owner_id, before=before, after=_snapshot(worker))


def _snapshot(worker: Worker) -> Snapshot:
    return {name: getattr(worker, name) for name in _AUDITED_FIELDS} | {"token_id": worker.token_id}
