"""Edits of queues: nothing of a paused one is placed; what a worker has already goes on.

Invariant: one pass at a time places what is in a queue, also while the queue moves from one pool to another.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db import transaction

from jobs import wakeups
from jobs.models import Queue
from jobs.services.database import bounded
from jobs.services.locking import lock_placement


def save_queue(queue: Queue) -> None:
    """A new queue, or an edit of one: it changes between two passes, and what waits in it is looked at now."""
    with transaction.atomic(), bounded(statement_seconds=10):
        lock_placement([queue.id])
        queue.save()
        transaction.on_commit(wakeups.wake_beat)


def pause_queues(queue_ids: Iterable[UUID]) -> int:
    """How many were not paused yet."""
    return Queue.objects.filter(id__in=list(queue_ids), paused=False).update(paused=True)


def resume_queues(queue_ids: Iterable[UUID]) -> int:
    """How many were paused; what has waited in them is looked at now."""
    with transaction.atomic():
        resumed = Queue.objects.filter(id__in=list(queue_ids), paused=True).update(paused=False)
        if resumed:
            transaction.on_commit(wakeups.wake_beat)
    return resumed
