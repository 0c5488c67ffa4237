"""Queues: create, edit, pause, resume, delete. A paused queue places nothing; placed executions still run.

A team's queue accepts jobs of the team's members only. Submitting and editing a job check that, firing does not: jobs
that are in the queue already stay and run.

Invariant: one pass at a time places the executions of a queue, even while the queue moves from one pool to another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from uuid import UUID

from django.db import IntegrityError, transaction

from jobs.audit.log import Change, record_change, record_changes
from jobs.db import wakeups
from jobs.db.locks import lock_placement
from jobs.db.transactions import with_timeouts
from jobs.domain.errors import Conflict, InvalidInput, NotFound
from jobs.models import Execution, JobVersion, Queue, Team

DEFAULT_QUEUE = "default"
EDITABLE_FIELDS = ("pool", "priority", "max_concurrency", "aging_seconds", "paused")


def create_queue(**fields: object) -> Queue:
    queue = Queue(**fields)
    try:
        save_queue(queue)
    except IntegrityError:
        raise Conflict(f"There is a queue {queue.name!r} already; choose another name.") from None
    return queue


def save_queue(
    queue: Queue, *, changed: Collection[str] | None = None, precondition: Callable[[], None] = lambda: None
) -> None:
    """Insert a queue, or save its `changed` fields between two passes; the next pass starts at once.

    Other fields keep their stored values: the queue may have been paused since it was read. `precondition` is called
    under the lock; what it raises refuses the edit.
    """
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        lock_placement([queue.id])
        before = _snapshot(queue.id)
        if changed is not None and before is None:
            raise NotFound
        precondition()
        if changed is not None and "pool" in changed:
            _check_pins(queue)
        queue.save(update_fields=changed)
        record_change(
            "queue.created" if before is None else "queue.edited", queue, before=before, after=_snapshot(queue.id)
        )
        transaction.on_commit(wakeups.wake_beat)


def _check_pins(queue: Queue) -> None:
    """Refuse a move away from the pool of pinned executions; pinning takes the queue's lock as well."""
    bound = Execution.objects.filter(queue_id=queue.id, ended_at__isnull=True).exclude(pinned_worker=None)
    if name := bound.exclude(pinned_worker__pool=queue.pool).values_list("pinned_worker__name", flat=True).first():
        raise InvalidInput(
            "pool",
            f"An execution in the queue is pinned to the worker {name}, which is not in the pool {queue.pool};"
            " let it finish, or cancel it.",
        )


def pause_queues(queue_ids: Iterable[UUID]) -> int:
    """Pause these queues; return how many were not paused."""
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        return _set_paused(queue_ids, paused=True)


def resume_queues(queue_ids: Iterable[UUID]) -> int:
    """Resume these queues and wake beat; return how many were paused."""
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        resumed = _set_paused(queue_ids, paused=False)
        if resumed:
            transaction.on_commit(wakeups.wake_beat)
    return resumed


def delete_queue(queue: Queue, *, precondition: Callable[[], None] = lambda: None) -> None:
    if queue.name == DEFAULT_QUEUE:
        raise Conflict(f"Jobs that name no queue are submitted to {DEFAULT_QUEUE!r}; it cannot be deleted.")
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        lock_placement([queue.id])
        if not Queue.objects.filter(id=queue.id).exists():
            raise NotFound
        precondition()
        # A version of the job names every queue that its executions are or were in.
        if JobVersion.objects.filter(queue=queue).exists():
            raise Conflict(f"Jobs are in the queue {queue.name!r}, or were; pause it instead.")
        record_change("queue.deleted", queue, before=_snapshot(queue.id))
        queue.delete()


def _set_paused(queue_ids: Iterable[UUID], *, paused: bool) -> int:
    others = Queue.objects.select_for_update(no_key=True).filter(id__in=list(queue_ids), paused=not paused)
    found = list(others.order_by("id"))
    Queue.objects.filter(id__in=[queue.id for queue in found]).update(paused=paused)
    action = "queue.paused" if paused else "queue.resumed"
    before, after = {"paused": not paused}, {"paused": paused}
    record_changes([Change(action, queue.id, queue.name, before=before, after=after) for queue in found])
    return len(found)


def find_team(name: str | None) -> Team | None:
    """Return the team; for staff, who may assign a queue to any team."""
    if name is None:
        return None
    team = Team.objects.filter(name=name).first()
    if team is None:
        raise InvalidInput("team", f"There is no team {name!r}; GET /api/v1/teams lists them.")
    return team


def _snapshot(queue_id: UUID) -> dict[str, object] | None:
    queue = Queue.objects.select_related("team").filter(id=queue_id).first()
    if queue is None:
        return None
    return {name: getattr(queue, name) for name in EDITABLE_FIELDS} | {"team": queue.team.name if queue.team else None}
