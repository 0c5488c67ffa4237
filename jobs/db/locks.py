"""Row and advisory locks of edits, always acquired in one order to avoid deadlocks.

Order: calendars, owner (for edits of dependencies), runs of fixed delays, schedules, job, its other executions, and
finally the placement lock of a pool, since a placement pass waits for no row lock. Firing and finishing use the same
order: finishing a fixed delay's run holds the run and needs its schedule; firing holds schedules and needs their job.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Model, QuerySet

from jobs.domain.errors import NotFound
from jobs.domain.recurrence import Kind
from jobs.domain.states import STARTED, TERMINAL, State
from jobs.models import Execution, Job, Queue, Schedule

Row = TypeVar("Row", bound=Model)

# A retry is needed only if beat fires at that very moment; after the last one a deadlock becomes an error.
_MAX_TRIES = 10


def lock_job(job_id: UUID) -> Job:
    return Job.objects.select_for_update(no_key=True).get(id=job_id)


def lock_job_and_schedules(job_id: UUID) -> Job:
    return lock_jobs_and_schedules([job_id])[0]


def lock_jobs_and_schedules(job_ids: Collection[UUID]) -> list[Job]:
    delayed = Execution.objects.filter(job_id__in=job_ids, ended_at__isnull=True, schedule__kind=Kind.DELAY)
    schedules = Schedule.objects.filter(job_id__in=job_ids).order_by("id")
    for tries_left in reversed(range(_MAX_TRIES)):
        before = transaction.savepoint()
        runs = set(_lock_rows(delayed.order_by("id")))
        _lock_rows(schedules)
        # Beat may have fired a run while we waited for the schedules' locks, but cannot now that we hold them.
        if not tries_left or runs >= set(delayed.values_list("id", flat=True)):
            break
        transaction.savepoint_rollback(before)
    return list(Job.objects.select_for_update(no_key=True).filter(id__in=job_ids).order_by("id"))


def _lock_rows(rows: QuerySet[Row]) -> list[UUID]:
    return list(rows.select_for_update(no_key=True, of=("self",)).values_list("id", flat=True))


def lock_unfinished_executions(job_id: UUID) -> list[UUID]:
    """Lock a job's unfinished executions; the caller holds the job's lock, so the set of executions cannot change."""
    return _lock_rows(Execution.objects.filter(job_id=job_id, ended_at__isnull=True).order_by("id"))


def lock_unclaimed_network_executions(job_id: UUID) -> list[UUID]:
    """Lock a job's executions with network that no worker has claimed; the caller holds the job's lock."""
    unclaimed = [state.value for state in State if state not in TERMINAL | STARTED]
    rows = Execution.objects.filter(job_id=job_id, ended_at__isnull=True, state__in=unclaimed, version__network=True)
    return _lock_rows(rows.order_by("id"))


def lock_placement(queue_ids: Collection[UUID]) -> None:
    """Wait for the placement passes of these queues; the next passes see this transaction's changes.

    The queues are locked first, so that they stay in their pools.
    """
    queues = Queue.objects.select_for_update(no_key=True).filter(id__in=queue_ids).order_by("id")
    pools = {queue.pool for queue in queues}
    with connection.cursor() as cursor:
        for pool in sorted(pools):
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [placement_lock_name(pool)])


def placement_lock_name(pool: str) -> str:
    return f"punctual.place.{pool}"


def lock_owner_dependencies(owner_id: int) -> None:
    """Serialise edits of dependencies: two edits could otherwise close a cycle together."""
    list(User.objects.select_for_update(no_key=True).filter(id=owner_id).values_list("id"))


def lock_execution(execution_id: UUID) -> Execution:
    """Lock an execution; to be called before locking its job, which is the order of finishing executions."""
    rows = Execution.objects.select_related("job").select_for_update(no_key=True, of=("self",))
    execution = rows.filter(id=execution_id).first()
    if execution is None:
        raise NotFound
    return execution
