"""Which executions are on a page of the list, or of the list of dead letters.

Executions have no owner of their own: those of somebody with few jobs are found through the jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Q

from jobs import sql
from jobs.models import Attempt, Execution, Job
from jobs.models.execution import UNSUCCESSFUL
from jobs.querysets.visibility import visible_to
from jobs.querysets.walking import Finder, Listing, Order, Source, Walk
from jobs.states import ACTIVE, WAITING, values

ORDERS = {
    "-created": Order(("id",), descending=True),
    "created": Order(("id",), descending=False),
    "-ended_at": Order(("ended_at", "id"), descending=True),
    "ended_at": Order(("ended_at", "id"), descending=False),
}
# So many jobs are looked into one by one; whoever has more finds some of theirs among everybody's.
MAX_JOBS_EACH = 500
_LATEST = UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class ExecutionFilters:
    job_id: UUID | None = None
    worker_id: UUID | None = None
    status: str | None = None
    retry_of: UUID | None = None
    ended_from: datetime | None = None
    ended_to: datetime | None = None
    dead_letter: str | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    id: UUID


def list_executions(user: User, filters: ExecutionFilters, ordering: str) -> Listing:
    order = ORDERS[ordering]
    columns = {
        "job_id": filters.job_id,
        "worker_id": filters.worker_id,
        "state": filters.status,
        "retry_of": filters.retry_of,
        "ended_at__gte": filters.ended_from,
        "ended_at__lt": filters.ended_to,
        "dead_letter": filters.dead_letter,
    }
    wanted = {column: value for column, value in columns.items() if value is not None}
    match = visible_to(user, Execution.objects.filter(**wanted), owner="job__owner")
    if not order.by_id:
        match = match.filter(ended_at__isnull=False)
    # What is walked tells by its length how much there is: of another's job it must be nothing.
    hidden = filters.job_id is not None and not visible_to(user, Job.objects.filter(id=filters.job_id)).exists()
    # The filter that the walked index already answers.
    if not order.by_id:
        walked = {"ended_at__isnull": False} | {k: v for k, v in wanted.items() if k.startswith("ended_at__")}
    elif filters.job_id is not None:
        walked = {"job_id": filters.job_id}
    else:
        walked = {"dead_letter": filters.dead_letter} if filters.dead_letter else {}
    rows = Execution.objects.filter(**walked)
    own_job = filters.job_id is not None and order.by_id
    return Listing(
        match=match,
        order=order,
        walk=Walk(rows.none() if hidden else rows, order.fields),
        filtered=bool(wanted.keys() - walked.keys()) or not (user.is_staff or own_job),
        sources=_sources(filters),
        finders=_finders(user, filters),
    )


def _sources(filters: ExecutionFilters) -> list[Source]:
    executions = Execution.objects.all()
    sources = []
    if filters.retry_of is not None:
        sources.append(Source(((executions.filter(retry_of=filters.retry_of), "id"),)))
    if filters.worker_id is not None:
        held = executions.filter(worker_id=filters.worker_id, state__in=values(ACTIVE))
        claimed = Attempt.objects.filter(worker_id=filters.worker_id)
        sources.append(Source(((claimed, "execution_id"), (held, "id"))))
    if filters.status is not None:
        rows = executions.filter(state=filters.status)
        if filters.status in values(UNSUCCESSFUL):
            sources.append(Source(((rows, "id"),)))
        elif filters.status in values(WAITING | ACTIVE):
            sources.append(Source(((rows, "id"),), ordered=False))
    if filters.job_id is not None:
        sources.append(Source(((executions.filter(job_id=filters.job_id), "id"),)))
    ended = Q() if filters.ended_from is None else Q(ended_at__gte=filters.ended_from)
    ended &= Q() if filters.ended_to is None else Q(ended_at__lt=filters.ended_to)
    if ended:
        sources.append(Source(((executions.filter(ended), "id"),), ordered=False))
    return sources


def _finders(user: User, filters: ExecutionFilters) -> list[Finder]:
    return [] if user.is_staff or filters.job_id is not None else [partial(_find_of_owner, user.pk)]


def _find_of_owner(owner_id: int, before: UUID | None, limit: int) -> list[UUID] | None:
    if Job.objects.filter(owner_id=owner_id)[MAX_JOBS_EACH:].exists():
        return None
    parameters = {"owner_id": owner_id, "before": before or _LATEST, "limit": limit}
    return [found.id for found in sql.fetch("executions_of_owner", parameters, _Found)]
