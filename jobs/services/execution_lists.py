"""Which executions are on a page of the list, or of the list of dead letters.

Executions have no owner of their own: those of somebody with few jobs are found through the jobs. Their ids tell when
they were made, so a range of time is a range of ids, but for the few that were fired or ended long after.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, QuerySet, TextField
from django.db.models.functions import Cast

from jobs import sql
from jobs.models import Attempt, Execution, Job, JobVersion, Queue
from jobs.models.execution import LONG, UNSUCCESSFUL, ended_long_after, fired_long_after
from jobs.models.ids import first_id
from jobs.querysets.visibility import id_of_team, id_of_user, shared_with
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
# Ids carry the clock of whoever made them, all else the database's.
CLOCKS_DIFFER = timedelta(hours=1)
_FIRST, _LAST = UUID(int=0), UUID(int=2**128 - 1)
_EARLIEST, _LATEST = datetime(1970, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)


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
        "job__owner": owner_id,
        "job__team": team_id,
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
    if unknown or (asks and not _is_any(shared_with(user, Job.objects.filter(**given)))):
        rows = rows.none()
    if not order.by_id:
        match = match.filter(ended_at__isnull=False)
    own_job = filters.job_id is not None and order.by_id
    paths = partial(_paths, user, filters, queue, owner_id, team_id, descending=order.descending)
    return Listing(
        match=shared_with(user, match, job="job"),
        order=order,
        walk=Walk(rows, order.fields),
        filtered=bool(wanted.keys() - walked.keys()) or not (user.is_staff or own_job),
        sources=[*_sources(filters), *_in_time(rows, filters)],
        paths=paths if order.by_id else tuple,
    )


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
        bounds["id__gte"] = _id_at(filters.scheduled_from, -CLOCKS_DIFFER)
    if filters.ended_to is not None:
        bounds["id__lt"] = _id_at(filters.ended_to, CLOCKS_DIFFER)
    if filters.job_id is not None:
        return bounds | {"job_id": filters.job_id}
    return bounds | ({"dead_letter": filters.dead_letter} if filters.dead_letter else {})


def _id_at(moment: datetime, shift: timedelta) -> UUID:
    return first_id(min(max(moment, _EARLIEST), _LATEST) + shift)


def _sources(filters: ExecutionFilters) -> Iterator[Source]:
    executions = Execution.objects.all()
    if filters.retry_of is not None:
        yield Source(((executions.filter(retry_of=filters.retry_of), "id"),))
    if filters.worker_id is not None:
        held = executions.filter(worker_id=filters.worker_id, state__in=values(ACTIVE))
        claimed = Attempt.objects.filter(worker_id=filters.worker_id)
        yield Source(((claimed, "execution_id"), (held, "id")))
    if filters.job_id is not None:
        yield Source(((executions.filter(job_id=filters.job_id), "id"),))
    if filters.dead_letter is not None:
        yield Source(((executions.filter(dead_letter=filters.dead_letter), "id"),))
    if filters.status in values(UNSUCCESSFUL):
        yield Source(((executions.filter(state=filters.status), "id"),))
    elif filters.status in values(WAITING | ACTIVE):
        yield Source(((executions.filter(state=filters.status), "id"),), ordered=False)


def _in_time(rows: QuerySet[Execution], filters: ExecutionFilters) -> Iterator[Source]:
    if filters.scheduled_to is not None:
        soon = rows.filter(id__lt=_id_at(filters.scheduled_to, CLOCKS_DIFFER + LONG))
        yield Source(((soon, "id"), (Execution.objects.filter(fired_long_after()), "id")))
    if filters.ended_from is not None:
        soon = rows.filter(id__gte=_id_at(filters.ended_from, -CLOCKS_DIFFER - LONG))
        yield Source(((soon, "id"), (Execution.objects.filter(ended_long_after()), "id")))


def _paths(
    user: User,
    filters: ExecutionFilters,
    queue: Queue | None,
    owner_id: int | None,
    team_id: UUID | None,
    *,
    descending: bool,
) -> Iterator[Path]:
    """Through the jobs of an owner, a team or a queue, if these are few."""
    if filters.job_id is not None:
        return
    if owner_id is not None or team_id is not None or not user.is_staff:
        asked = {"owner": owner_id, "team": team_id}
        jobs = Job.objects.filter(**{name: value for name, value in asked.items() if value is not None})
        yield from _through(shared_with(user, jobs), "id", descending)
    if queue is not None:
        # Whatever queue an execution stands or stood in, a version of its job names it.
        yield from _through(JobVersion.objects.filter(queue=queue).distinct(), "job_id", descending)


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
