"""The locks under which what is in force changes, always taken in one order.

That order is the one of those who do it meanwhile, or the two would wait for each other: the end of a fixed delay's run
holds the run and wants its schedule; a beat holds schedules and wants their job. Calendars come before all of these,
then the owner, whose lock is for edits of what runs after what. Who moves what waits to another queue takes the rest of
the job's executions after the job, as a beat does that cancels them, and the placement of their queues last: who places
waits for nobody.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Model, QuerySet

from jobs.models import Execution, Job, Queue, Schedule
from jobs.recurrence import Kind
from jobs.states import STARTED, TERMINAL, State

Row = TypeVar("Row", bound=Model)

# In each a beat must fire at the very moment; after so many the database would break the circle, with an error.
_TRIES = 10
UNFINISHED = [state.value for state in State if state not in TERMINAL]


def lock_job(job_id: UUID) -> Job:
    return Job.objects.select_for_update(no_key=True).get(id=job_id)


def lock_job_and_schedules(job_id: UUID) -> Job:
    return lock_jobs_and_schedules([job_id])[0]


def lock_jobs_and_schedules(job_ids: Collection[UUID]) -> list[Job]:
    delayed = Execution.objects.filter(job_id__in=job_ids, state__in=UNFINISHED, schedule__kind=Kind.DELAY)
    schedules = Schedule.objects.filter(job_id__in=job_ids).order_by("id")
    for tries_left in reversed(range(_TRIES)):
        before = transaction.savepoint()
        runs = set(_lock(delayed.order_by("id")))
        _lock(schedules)
        # A beat may have fired one while we waited for the schedules; it cannot any more once they are ours.
        if not tries_left or runs >= set(delayed.values_list("id", flat=True)):
            break
        transaction.savepoint_rollback(before)
    return list(Job.objects.select_for_update(no_key=True).filter(id__in=job_ids).order_by("id"))


def _lock(rows: QuerySet[Row]) -> list[UUID]:
    return list(rows.select_for_update(no_key=True, of=("self",)).values_list("id", flat=True))


def lock_unfinished(job_id: UUID) -> list[UUID]:
    """Under the job's lock: nothing of it begins or ends to wait meanwhile, and who moves it next sees what is new."""
    return _lock(Execution.objects.filter(job_id=job_id, state__in=UNFINISHED).order_by("id"))


def lock_unclaimed_with_network(job_id: UUID) -> list[UUID]:
    """Under the job's lock, as above: those of it that no worker has taken yet, nor takes meanwhile."""
    unclaimed = [state.value for state in State if state not in TERMINAL | STARTED]
    rows = Execution.objects.filter(job_id=job_id, state__in=unclaimed, version__network=True)
    return _lock(rows.order_by("id"))


def lock_placement(queue_ids: Collection[UUID]) -> None:
    """Waits for the pass that places what is in these queues; the next one sees what this transaction changes.

    The queues themselves are locked first, so that they stay in the pools whose passes are waited for.
    """
    queues = Queue.objects.select_for_update(no_key=True).filter(id__in=queue_ids).order_by("id")
    pools = {queue.pool for queue in queues}
    with connection.cursor() as cursor:
        for pool in sorted(pools):
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [placement_lock(pool)])


def placement_lock(pool: str) -> str:
    return f"punctual.place.{pool}"


def lock_dependencies_of(owner_id: int) -> None:
    """Two edits that each close no circle could close one together."""
    list(User.objects.select_for_update(no_key=True).filter(id=owner_id).values_list("id"))
