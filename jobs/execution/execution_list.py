"""Pages of the list of executions and of the dead-letter list.

Executions have no owner column: those of a user with few jobs are found through the jobs. Ids contain the time of
creation, so a range of time is a range of ids, except for the few executions that fired or finished long after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast

from jobs.db import sql
from jobs.db.keyset import (
    STATEMENT_TIMEOUT_SECONDS,
    IdSource,
    Listing,
    Order,
    OrderedRows,
    Path,
    Position,
    planned_without,
)
from jobs.domain.states import ACTIVE, HELD, WAITING, sorted_values
from jobs.models import Attempt, Execution, Job, JobVersion, Queue
from jobs.models.execution import LONG, UNSUCCESSFUL_STATES, ended_long_after, fired_long_after
from jobs.models.ids import MAX_CLOCK_SKEW, shifted_first_id
from jobs.models.visibility import find_team_id, find_user_id, is_operator, read_team_ids, shared_with

ORDERS = {
    "-created": Order(("id",), descending=True),
    "created": Order(("id",), descending=False),
    "-ended_at": Order(("ended_at", "id"), descending=True),
    "ended_at": Order(("ended_at", "id"), descending=False),
}
# Up to this many jobs are searched one by one; a user with more finds theirs while scanning all executions.
MAX_JOBS_PER_PATH = 3000
# Up to this many steps of executions are all read and sorted.
MAX_STEPS_TO_SORT = 4
_FIRST_ID, _LAST_ID = UUID(int=0), UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class ExecutionFilters:
    job_id: UUID | None = None
    worker_id: UUID | None = None
    status: str | None = None
    queue: str | None = None
    owner: str | None = None
    team: str | None = None
    retry_of: UUID | None = None
    scheduled_from: datetime | None = None
    scheduled_to: datetime | None = None
    ended_from: datetime | None = None
    ended_to: datetime | None = None
    dead_letter: str | None = None


def list_executions(user: User, filters: ExecutionFilters, ordering: str) -> Listing:
    order = ORDERS[ordering]
    # Resolved first: the planner cannot know how many executions a name selects.
    queue = Queue.objects.filter(name=filters.queue).first() if filters.queue is not None else None
    owner_id = None if filters.owner is None else find_user_id(filters.owner)
    team_id = None if filters.team is None else find_team_id(filters.team)
    columns = {
        "job_id": filters.job_id,
        "worker_id": filters.worker_id,
        "state": filters.status,
        "queue_id": queue and queue.pk,
        "retry_of": filters.retry_of,
        "scheduled_for__gte": filters.scheduled_from,
        "scheduled_for__lt": filters.scheduled_to,
        "ended_at__gte": filters.ended_from,
        "ended_at__lt": filters.ended_to,
        "dead_letter": filters.dead_letter,
    }
    wanted = {column: value for column, value in columns.items() if value is not None}
    indexed = _filters_in_index(filters, wanted, order)
    rows, match = Execution.objects.filter(**indexed), Execution.objects.filter(**wanted)
    # The length of a walk reveals how many rows there are, so walk nothing of jobs that the user may not see.
    wanted_jobs = {"id": filters.job_id, "owner": owner_id, "team": team_id}
    given = {name: value for name, value in wanted_jobs.items() if value is not None}
    unknown = filters.queue is not None and queue is None
    check_jobs = given or not (is_operator(user) or order.by_id)
    teams = [] if is_operator(user) else read_team_ids(user)
    jobs = shared_with(user, Job.objects.filter(**given), teams=teams)
    if unknown or (check_jobs and not _has_any_job(jobs)):
        rows, match = rows.none(), match.none()
    if not order.by_id:
        match = match.filter(ended_at__isnull=False)
    # For a single job this has been checked already.
    visible_sets = [] if filters.job_id is not None else _visible_job_sets(user, teams, jobs if given else None)
    return Listing(
        match=_filter_by_job_sets(match, jobs, visible_sets),
        order=order,
        walk=OrderedRows(rows, order.fields),
        filtered=bool(wanted.keys() - indexed.keys() or visible_sets),
        sources=[
            *_sources(filters),
            *_time_range_sources(rows, filters),
            *([] if order.by_id else _sorted_sources(jobs, visible_sets)),
        ],
        paths=partial(_paths, jobs, visible_sets, queue, order) if order.by_id and filters.job_id is None else tuple,
    )


def _visible_job_sets(user: User, teams: Sequence[UUID], asked: QuerySet[Job] | None) -> list[QuerySet[Job]]:
    """Return the visible jobs in sets that an index by owner or team covers; none: all jobs."""
    if asked is not None:
        return [asked]
    if is_operator(user):
        return []
    return [Job.objects.filter(owner=user), *(Job.objects.filter(team=each) for each in teams)]


def _filter_by_job_sets(
    rows: QuerySet[Execution], jobs: QuerySet[Job], visible_sets: Sequence[QuerySet[Job]]
) -> QuerySet[Execution]:
    """Filter by EXISTS for each set, and for deleted jobs: indexes answer these without reading jobs of other users.

    With a join Postgres reads the job of every execution that it passes, from all over that table.
    """
    if not visible_sets:
        return rows
    job = {"id": OuterRef("job_id")}
    is_shown = Q(Exists(jobs.filter(**job, deleted_at__isnull=False)))
    for visible_set in visible_sets:
        is_shown |= Q(Exists(visible_set.filter(**job, deleted_at__isnull=True)))
    return rows.filter(is_shown)


def _has_any_job(jobs: QuerySet[Job]) -> bool:
    with planned_without("seqscan", seconds=STATEMENT_TIMEOUT_SECONDS):
        return jobs.exists()


def _filters_in_index(filters: ExecutionFilters, wanted: dict[str, Any], order: Order) -> dict[str, Any]:
    """Return the filters that the index of the walk answers."""
    if not order.by_id:
        return {"ended_at__isnull": False} | {k: v for k, v in wanted.items() if k.startswith("ended_at__")}
    # No execution fires before its instant or finishes before it was created.
    bounds: dict[str, Any] = {}
    if filters.scheduled_from is not None:
        bounds["id__gte"] = shifted_first_id(filters.scheduled_from, -MAX_CLOCK_SKEW)
    if filters.ended_to is not None:
        bounds["id__lt"] = shifted_first_id(filters.ended_to, MAX_CLOCK_SKEW)
    if filters.job_id is not None:
        return bounds | {"job_id": filters.job_id}
    return bounds | ({"dead_letter": filters.dead_letter} if filters.dead_letter else {})


def _sources(filters: ExecutionFilters) -> Iterator[IdSource]:
    executions = Execution.objects.all()
    if filters.retry_of is not None:
        yield IdSource(((executions.filter(retry_of=filters.retry_of), "id"),))
    if filters.worker_id is not None:
        held = executions.filter(worker_id=filters.worker_id, phase=HELD)
        claimed = Attempt.objects.filter(worker_id=filters.worker_id)
        yield IdSource(((claimed, "execution_id"), (held, "id")))
    if filters.job_id is not None:
        yield IdSource(((executions.filter(job_id=filters.job_id), "id"),), steps=MAX_STEPS_TO_SORT)
    if filters.dead_letter is not None:
        yield IdSource(((executions.filter(dead_letter=filters.dead_letter), "id"),))
    if filters.status in sorted_values(UNSUCCESSFUL_STATES):
        yield IdSource(((executions.filter(phase=filters.status), "id"),))
    elif filters.status in sorted_values(WAITING | ACTIVE):
        phase = HELD if filters.status in sorted_values(ACTIVE) else filters.status
        unfinished = executions.filter(phase=phase, state=filters.status, ended_at__isnull=True)
        yield IdSource(((unfinished, "id"),), ordered=False)


def _time_range_sources(rows: QuerySet[Execution], filters: ExecutionFilters) -> Iterator[IdSource]:
    # Both kinds in one condition, as in their index: one kind may be rare among many of the other.
    delayed = Execution.objects.filter(fired_long_after() | ended_long_after())
    if filters.scheduled_to is not None:
        prompt = rows.filter(id__lt=shifted_first_id(filters.scheduled_to, MAX_CLOCK_SKEW + LONG))
        yield IdSource(((prompt, "id"), (delayed, "id")))
    if filters.ended_from is not None:
        prompt = rows.filter(id__gte=shifted_first_id(filters.ended_from, -MAX_CLOCK_SKEW - LONG))
        yield IdSource(((prompt, "id"), (delayed, "id")))


def _sorted_sources(jobs: QuerySet[Job], visible_sets: Sequence[QuerySet[Job]]) -> Iterator[IdSource]:
    """Read all executions of these jobs, if they are few, for an order without an index by job or owner.

    Such an index would be written whenever any execution finishes, for a query that is rare.
    """
    if visible_sets:
        yield IdSource(((Execution.objects.filter(job__in=jobs), "id"),), ordered=False, steps=MAX_STEPS_TO_SORT)


def _paths(
    jobs: QuerySet[Job], visible_sets: Sequence[QuerySet[Job]], queue: Queue | None, order: Order
) -> Iterator[Path]:
    """Search through the jobs of an owner, a team or a queue, if these are few."""
    if visible_sets and not _has_too_many_jobs(visible_sets):
        yield from _paths_through_jobs(jobs, "id", order.descending)
    if queue is not None:
        # A version of the job names every queue that its executions are or were in.
        yield from _paths_through_jobs(JobVersion.objects.filter(queue=queue).distinct(), "job_id", order.descending)


def _has_too_many_jobs(visible_sets: Sequence[QuerySet[Job]]) -> bool:
    """Return whether a set alone has too many jobs that are not deleted, by its index."""
    first, *others = (
        each.filter(deleted_at__isnull=True).order_by().values("id")[MAX_JOBS_PER_PATH : MAX_JOBS_PER_PATH + 1]
        for each in visible_sets
    )
    with planned_without("seqscan", seconds=STATEMENT_TIMEOUT_SECONDS):
        return bool(list(first.union(*others, all=True) if others else first))


def _paths_through_jobs(jobs: QuerySet[Any], name: str, descending: bool) -> Iterator[Path]:
    """Pass the ids as Postgres formats them: they only go back to it."""
    some = jobs.order_by().values(name)[: MAX_JOBS_PER_PATH + 1]
    with planned_without("seqscan", seconds=STATEMENT_TIMEOUT_SECONDS):
        taken = some.aggregate(count=Count(name), ids=Cast(ArrayAgg(name), TextField()))
    if taken["count"] <= MAX_JOBS_PER_PATH:
        yield partial(_read_ids_of_jobs, taken["ids"] or "{}", descending)


def _read_ids_of_jobs(job_ids: str, descending: bool, position: Position | None, count: int) -> list[Position]:
    start, end = (_LAST_ID, _FIRST_ID) if descending else (_FIRST_ID, _LAST_ID)
    name = "read_newest_of_jobs" if descending else "read_oldest_of_jobs"
    found = sql.fetch_ids(
        name,
        {"job_ids": job_ids, "start": position[0] if position else start, "end": end, "limit": count},
    )
    return [(execution_id,) for execution_id in found]
