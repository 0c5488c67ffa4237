"""Edits of queues: nothing of a paused one is placed; what a worker has already goes on.

Invariant: one pass at a time places what is in a queue, also while the queue moves from one pool to another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from uuid import UUID

from django.db import IntegrityError, transaction

from jobs import wakeups
from jobs.errors import Conflict, InvalidInput, NotFound
from jobs.models import Execution, JobVersion, Queue
from jobs.services.audit_trail import Change, record, record_all
from jobs.services.database import bounded
from jobs.services.locking import UNFINISHED, lock_placement

DEFAULT = "default"
EDITABLE = ("pool", "priority", "max_concurrency", "aging_seconds", "paused")


def create_queue(**fields: object) -> Queue:
    queue = Queue(**fields)
    try:
        save_queue(queue)
    except IntegrityError:
        raise Conflict(f"There is a queue {queue.name!r} already; choose another name.") from None
    return queue


def save_queue(
    queue: Queue, *, changed: Collection[str] | None = None, when_locked: Callable[[], None] = lambda: None
) -> None:
    """A new queue, or what is `changed` of one: it changes between two passes, and what waits in it is looked at now.

    What is not changed is left as it is by now: somebody may have paused the queue since it was read. `when_locked` is
    called once nobody else can edit it: what it raises refuses the edit.
    """
    with transaction.atomic(), bounded(statement_seconds=10):
        lock_placement([queue.id])
        before = Queue.objects.filter(id=queue.id).values(*EDITABLE).first()
        if changed is not None and before is None:
            raise NotFound
        when_locked()
        if changed is not None and "pool" in changed:
            _check_pins(queue)
        queue.save(update_fields=changed)
        after = Queue.objects.values(*EDITABLE).get(id=queue.id)
        record("queue.created" if before is None else "queue.edited", queue, before=before, after=after)
        transaction.on_commit(wakeups.wake_beat)


def _check_pins(queue: Queue) -> None:
    """Under the queue's lock, which whoever pins an execution takes, too."""
    bound = Execution.objects.filter(queue_id=queue.id, state__in=UNFINISHED).exclude(pinned_worker=None)
    if name := bound.exclude(pinned_worker__pool=queue.pool).values_list("pinned_worker__name", flat=True).first():
        raise InvalidInput(
            "pool",
            f"An execution in the queue is to run on the worker {name}, which is not in the pool {queue.pool};"
            " let it end, or cancel it.",
        )


def pause_queues(queue_ids: Iterable[UUID]) -> int:
    """How many were not paused yet."""
    with transaction.atomic(), bounded(statement_seconds=10):
        return _set_paused(queue_ids, paused=True)


def resume_queues(queue_ids: Iterable[UUID]) -> int:
    """How many were paused; what has waited in them is looked at now."""
    with transaction.atomic(), bounded(statement_seconds=10):
        resumed = _set_paused(queue_ids, paused=False)
        if resumed:
            transaction.on_commit(wakeups.wake_beat)
    return resumed


def delete_queue(queue: Queue, *, when_locked: Callable[[], None] = lambda: None) -> None:
    if queue.name == DEFAULT:
        raise Conflict(f"Jobs that name no queue are submitted to {DEFAULT!r}; it cannot be deleted.")
    with transaction.atomic(), bounded(statement_seconds=10):
        lock_placement([queue.id])
        if not Queue.objects.filter(id=queue.id).exists():
            raise NotFound
        when_locked()
        # Whatever queue an execution stands or stood in, a version of its job names it.
        if JobVersion.objects.filter(queue=queue).exists():
            raise Conflict(f"Jobs are in the queue {queue.name!r}, or were; pause it instead.")
        record("queue.deleted", queue, before={name: getattr(queue, name) for name in EDITABLE})
        queue.delete()


def _set_paused(queue_ids: Iterable[UUID], *, paused: bool) -> int:
    others = Queue.objects.select_for_update(no_key=True).filter(id__in=list(queue_ids), paused=not paused)
    found = list(others.order_by("id"))
    Queue.objects.filter(id__in=[queue.id for queue in found]).update(paused=paused)
    action = "queue.paused" if paused else "queue.resumed"
    before, after = {"paused": not paused}, {"paused": paused}
    record_all([Change(action, queue.id, queue.name, before=before, after=after) for queue in found])
    return len(found)
