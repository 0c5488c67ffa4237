"""Which executions are on a page of the list, or of the list of dead letters.

Executions have no owner of their own: those of somebody with few jobs are found through the jobs. Their ids tell when
they were made, so a range of time is a range of ids, but for the few that were fired or ended long after.
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

from jobs import sql
from jobs.models import Attempt, Execution, Job, JobVersion, Queue
from jobs.models.execution import LONG, UNSUCCESSFUL, ended_long_after, fired_long_after
from jobs.models.ids import CLOCKS_DIFFER, first_id_about
from jobs.querysets.visibility import id_of_team, id_of_user, shared_with, teams_of
from jobs.querysets.walking import MAX_SECONDS, Listing, Order, Path, Position, Source, Walk, planned_without
from jobs.states import ACTIVE, WAITING, values

ORDERS = {
    "-created": Order(("id",), descending=True),
    "created": Order(("id",), descending=False),
    "-ended_at": Order(("ended_at", "id"), descending=True),
    "ended_at": Order(("ended_at", "id"), descending=False),
}
# So many jobs are looked into one by one; whoever has more finds some of theirs among everybody's.
MAX_JOBS_EACH = 3000
# Of so many steps of executions all are read to bring them into another order.
MAX_STEPS_WHOLE = 4
_FIRST, _LAST = UUID(int=0), UUID(int=2**128 - 1)


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


@dataclass(frozen=True, slots=True)
class _Found:
    id: UUID


def list_executions(user: User, filters: ExecutionFilters, ordering: str) -> Listing:
    order = ORDERS[ordering]
    # Looked up beforehand: the planner cannot know how many executions a name stands for.
    queue = Queue.objects.filter(name=filters.queue).first() if filters.queue is not None else None
    owner_id = None if filters.owner is None else id_of_user(filters.owner)
    team_id = None if filters.team is None else id_of_team(filters.team)
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
    walked = _walked(filters, wanted, order)
    rows, match = Execution.objects.filter(**walked), Execution.objects.filter(**wanted)
    # What is walked tells by its length how much there is: of what is not shown it must be nothing.
    asked = {"id": filters.job_id, "owner": owner_id, "team": team_id}
    given = {name: value for name, value in asked.items() if value is not None}
    unknown = filters.queue is not None and queue is None
    asks = given or not (user.is_staff or order.by_id)
    teams = [] if user.is_staff else teams_of(user)
    jobs = shared_with(user, Job.objects.filter(**given), teams=teams)
    if unknown or (asks and not _is_any(jobs)):
        rows, match = rows.none(), match.none()
    if not order.by_id:
        match = match.filter(ended_at__isnull=False)
    # Of one job, this has been asked already.
    shares = [] if filters.job_id is not None else _shares(user, teams, jobs if given else None)
    return Listing(
        match=_of_shares(match, jobs, shares),
        order=order,
        walk=Walk(rows, order.fields),
        filtered=bool(wanted.keys() - walked.keys() or shares),
        sources=[*_sources(filters), *_in_time(rows, filters), *([] if order.by_id else _whole(jobs, shares))],
        paths=partial(_paths, jobs, shares, queue, order) if order.by_id and filters.job_id is None else tuple,
    )


def _shares(user: User, teams: Sequence[UUID], asked: QuerySet[Job] | None) -> list[QuerySet[Job]]:
    """The jobs whose executions are shown, in parts that have an index with owner or team before the id; none: all."""
    if asked is not None:
        return [asked]
    if user.is_staff:
        return []
    return [Job.objects.filter(owner=user), *(Job.objects.filter(team=each) for each in teams)]


def _of_shares(rows: QuerySet[Execution], jobs: QuerySet[Job], shares: Sequence[QuerySet[Job]]) -> QuerySet[Execution]:
    """Each share is asked for the job, and so is the index of the deleted: that of others is passed without being read.

    With a join Postgres reads the job of every execution that is passed, which lie all over that table.
    """
    if not shares:
        return rows
    job = {"id": OuterRef("job_id")}
    is_shown = Q(Exists(jobs.filter(**job, deleted_at__isnull=False)))
    for share in shares:
        is_shown |= Q(Exists(share.filter(**job, deleted_at__isnull=True)))
    return rows.filter(is_shown)


def _is_any(jobs: QuerySet[Job]) -> bool:
    with planned_without("seqscan", seconds=MAX_SECONDS):
        return jobs.exists()


def _walked(filters: ExecutionFilters, wanted: dict[str, Any], order: Order) -> dict[str, Any]:
    """The filters that the walked index answers itself."""
    if not order.by_id:
        return {"ended_at__isnull": False} | {k: v for k, v in wanted.items() if k.startswith("ended_at__")}
    # Nothing is fired before its instant or ends before it was made.
    bounds: dict[str, Any] = {}
    if filters.scheduled_from is not None:
        bounds["id__gte"] = first_id_about(filters.scheduled_from, -CLOCKS_DIFFER)
    if filters.ended_to is not None:
        bounds["id__lt"] = first_id_about(filters.ended_to, CLOCKS_DIFFER)
    if filters.job_id is not None:
        return bounds | {"job_id": filters.job_id}
    return bounds | ({"dead_letter": filters.dead_letter} if filters.dead_letter else {})


def _sources(filters: ExecutionFilters) -> Iterator[Source]:
    executions = Execution.objects.all()
    if filters.retry_of is not None:
        yield Source(((executions.filter(retry_of=filters.retry_of), "id"),))
    if filters.worker_id is not None:
        held = executions.filter(worker_id=filters.worker_id, state__in=values(ACTIVE))
        claimed = Attempt.objects.filter(worker_id=filters.worker_id)
        yield Source(((claimed, "execution_id"), (held, "id")))
    if filters.job_id is not None:
        yield Source(((executions.filter(job_id=filters.job_id), "id"),), steps=MAX_STEPS_WHOLE)
    if filters.dead_letter is not None:
        yield Source(((executions.filter(dead_letter=filters.dead_letter), "id"),))
    if filters.status in values(UNSUCCESSFUL):
        yield Source(((executions.filter(state=filters.status), "id"),))
    elif filters.status in values(WAITING | ACTIVE):
        yield Source(((executions.filter(state=filters.status), "id"),), ordered=False)


def _in_time(rows: QuerySet[Execution], filters: ExecutionFilters) -> Iterator[Source]:
    # Both kinds, whichever is asked for, so that their index tells them alone: one may be rare among many of the other.
    drawn_out = Execution.objects.filter(fired_long_after() | ended_long_after())
    if filters.scheduled_to is not None:
        soon = rows.filter(id__lt=first_id_about(filters.scheduled_to, CLOCKS_DIFFER + LONG))
        yield Source(((soon, "id"), (drawn_out, "id")))
    if filters.ended_from is not None:
        soon = rows.filter(id__gte=first_id_about(filters.ended_from, -CLOCKS_DIFFER - LONG))
        yield Source(((soon, "id"), (drawn_out, "id")))


def _whole(jobs: QuerySet[Job], shares: Sequence[QuerySet[Job]]) -> Iterator[Source]:
    """All executions of these jobs, if they are few, for an order that no index has of a job or an owner.

    One would be written with every execution of everybody's that ends, for a question that is seldom asked.
    """
    if shares:
        yield Source(((Execution.objects.filter(job__in=jobs), "id"),), ordered=False, steps=MAX_STEPS_WHOLE)


def _paths(jobs: QuerySet[Job], shares: Sequence[QuerySet[Job]], queue: Queue | None, order: Order) -> Iterator[Path]:
    """Through the jobs of an owner, a team or a queue, if these are few."""
    if shares and not _is_many(shares):
        yield from _through(jobs, "id", order.descending)
    if queue is not None:
        # Whatever queue an execution stands or stood in, a version of its job names it.
        yield from _through(JobVersion.objects.filter(queue=queue).distinct(), "job_id", order.descending)


def _is_many(shares: Sequence[QuerySet[Job]]) -> bool:
    """Whether one of them is too many by itself, which its index tells of those that are not deleted."""
    first, *others = (
        each.filter(deleted_at__isnull=True).order_by().values("id")[MAX_JOBS_EACH : MAX_JOBS_EACH + 1]
        for each in shares
    )
    with planned_without("seqscan", seconds=MAX_SECONDS):
        return bool(list(first.union(*others, all=True) if others else first))


def _through(jobs: QuerySet[Any], name: str, descending: bool) -> Iterator[Path]:
    """The ids stay as Postgres writes them: they only go back to it."""
    some = jobs.order_by().values(name)[: MAX_JOBS_EACH + 1]
    with planned_without("seqscan", seconds=MAX_SECONDS):
        taken = some.aggregate(count=Count(name), ids=Cast(ArrayAgg(name), TextField()))
    if taken["count"] <= MAX_JOBS_EACH:
        yield partial(_of_jobs, taken["ids"] or "{}", descending)


def _of_jobs(job_ids: str, descending: bool, position: Position | None, count: int) -> list[Position]:
    start, end = (_LAST, _FIRST) if descending else (_FIRST, _LAST)
    name = "newest_of_jobs" if descending else "oldest_of_jobs"
    found = sql.fetch(
        name, {"job_ids": job_ids, "start": position[0] if position else start, "end": end, "limit": count}, _Found
    )
    return [(each.id,) for each in found]
