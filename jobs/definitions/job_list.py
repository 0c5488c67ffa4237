"""Pages of the list of jobs.

A job's status is derived, so a filter by status starts from the executions or schedules that cause it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import StrIndex, Upper
from django.db.models.lookups import GreaterThan

from jobs.db.keyset import IdSource, Listing, Order, OrderedRows
from jobs.definitions.job_status import JobStatus, with_status
from jobs.domain.states import HELD, STARTED, sorted_values
from jobs.models import Execution, Job, JobVersion, Queue, Schedule
from jobs.models.execution import UNSUCCESSFUL_STATES
from jobs.models.visibility import find_team_id, find_user_id, is_operator, read_team_ids, shared_with

ORDERS = {
    "-created": Order(("id",), descending=True),
    "created": Order(("id",), descending=False),
    "name": Order(("name", "id"), descending=False),
    "-name": Order(("name", "id"), descending=True),
    "next_fire": Order(("next_fire_at", "id"), descending=False),
    "-next_fire": Order(("next_fire_at", "id"), descending=True),
}
# A shorter text has no trigram that the index could be searched for.
MIN_INDEXED_SEARCH = 3


@dataclass(frozen=True, slots=True)
class JobFilters:
    status: str | None = None
    queue: str | None = None
    priority: int | None = None
    owner: str | None = None
    team: str | None = None
    search: str | None = None
    name: str | None = None
    deleted: bool = False


def list_jobs(user: User, filters: JobFilters, ordering: str) -> Listing:
    order = ORDERS[ordering]
    # Resolved first: the planner cannot estimate how many jobs a joined name has.
    queue = Queue.objects.filter(name=filters.queue).first() if filters.queue is not None else None
    owner_id = None if filters.owner is None else find_user_id(filters.owner)
    team_id = None if filters.team is None else find_team_id(filters.team)
    everything = Job.objects.filter(deleted_at__isnull=not filters.deleted)
    if filters.queue is not None and queue is None:
        everything = everything.none()
    if filters.name is not None and not filters.deleted:
        everything = everything.filter(name=filters.name)
    teams = [] if is_operator(user) else read_team_ids(user)
    jobs = shared_with(user, everything, teams=teams)
    if owner_id is not None:
        jobs = jobs.filter(owner=owner_id)
    if team_id is not None:
        jobs = jobs.filter(team=team_id)
    columns = {
        "status": filters.status,
        "current_version__queue": queue,
        "current_version__priority": filters.priority,
    }
    wanted = {column: value for column, value in columns.items() if value is not None}
    match = (jobs if filters.status is None else with_status(jobs)).filter(**wanted)
    (first, *others), exact = _visible_job_sets(user, teams, everything, owner_id, team_id)
    walk, sources = OrderedRows(first, order.fields, others), [*_sources(filters, queue)]
    searched = None
    filtered = bool(wanted) or filters.search is not None or not exact
    if filters.name is not None and filters.deleted:
        # The indexes by name exclude deleted jobs, so the index of the search finds them.
        match, filtered = match.filter(name=filters.name), True
        if len(filters.name) >= MIN_INDEXED_SEARCH:
            searched = jobs.filter(name=filters.name, name__icontains=filters.name)
    if filters.search is not None:
        # Compares names directly: for a few jobs known by id, the index of all names would be slower.
        match = match.filter(GreaterThan(StrIndex(Upper("name"), Upper(Value(filters.search))), 0))
        if len(filters.search) >= MIN_INDEXED_SEARCH:
            searched = (jobs if searched is None else searched).filter(name__icontains=filters.search)
    by_firing = order.fields[0] == "next_fire_at"
    if by_firing:
        match, walk = _with_next_fire(match), OrderedRows(_next_schedule_of_each_job(), ("next_fire_at", "job_id"))
        if any(each is not None for each in (owner_id, team_id, filters.name)) or not is_operator(user):
            sources.append(IdSource(((jobs, "id"),)))
        searched = None if searched is None else _with_next_fire(searched)
    return Listing(
        match=match,
        order=order,
        walk=walk,
        filtered=filtered or by_firing,
        sources=sources,
        searched=searched,
    )


def _visible_job_sets(
    user: User, teams: Sequence[UUID], rows: QuerySet[Job], owner_id: int | None, team_id: UUID | None
) -> tuple[list[QuerySet[Job]], bool]:
    """Return row sets that cover the list, one per index, and whether they are exactly the list.

    They contain only jobs that the user may see.
    """
    own = rows.filter(owner=user)
    if is_operator(user):
        matching = rows if owner_id is None else rows.filter(owner=owner_id)
        return ([matching], True) if team_id is None else ([rows.filter(team=team_id)], owner_id is None)
    if team_id is not None:
        return ([rows.filter(team=team_id)], owner_id is None) if team_id in teams else ([own], False)
    if owner_id == user.pk:
        return [own], True
    shared = [rows.filter(team=each) for each in teams]
    return ([own, *shared], True) if owner_id is None else (shared or [rows.none()], False)


def _sources(filters: JobFilters, queue: Queue | None) -> Iterator[IdSource]:
    if filters.status is not None and not filters.deleted:
        yield from _status_sources(filters.status)
    if queue is not None:
        yield IdSource(((JobVersion.objects.filter(queue=queue), "job_id"),))
    if filters.priority is not None:
        yield IdSource(((JobVersion.objects.filter(priority=filters.priority), "job_id"),))


def _status_sources(status: str) -> list[IdSource]:
    """Return where jobs of a status are found; nothing for a status of most jobs or `waiting`."""
    stopped = (Job.objects.filter(state=status, deleted_at__isnull=True).exclude(state="active"), "id")
    ended = (Execution.objects.filter(phase=status), "job_id")
    match status:
        case JobStatus.PAUSED:
            return [IdSource((stopped,))]
        case JobStatus.CANCELLED:
            return [IdSource((stopped, ended))]
        case JobStatus.RUNNING:
            return [IdSource(((Execution.objects.filter(phase=HELD, state__in=sorted_values(STARTED)), "job_id"),))]
        case JobStatus.SCHEDULED:
            return [IdSource(((Schedule.objects.filter(next_fire_at__isnull=False), "job_id"),), ordered=False)]
        case other if other in sorted_values(UNSUCCESSFUL_STATES):
            return [IdSource((ended,))]
        case _:
            return []


def _with_next_fire(jobs: QuerySet[Job]) -> QuerySet[Job]:
    first = Schedule.objects.filter(job=OuterRef("pk"), next_fire_at__isnull=False).order_by("next_fire_at")
    timed = jobs.annotate(next_fire_at=Subquery(first.values("next_fire_at")[:1]))
    return timed.filter(next_fire_at__isnull=False)


def _next_schedule_of_each_job() -> QuerySet[Schedule]:
    """Return one schedule per job: the next to fire."""
    earlier = Schedule.objects.filter(
        Q(next_fire_at__lt=OuterRef("next_fire_at")) | Q(next_fire_at=OuterRef("next_fire_at"), id__lt=OuterRef("id")),
        job=OuterRef("job"),
    )
    return Schedule.objects.filter(~Exists(earlier), next_fire_at__isnull=False)
