"""Finds executions that wait for no reason, for the audit of attempts. Read-only.

It applies the rules of placement, of the sweep and of the reaper: an execution that they would move now, and have not
moved for long, is stuck.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import Now, RowNumber

from jobs.db import sql
from jobs.db.transactions import with_timeouts
from jobs.dispatch.explain import explain_execution
from jobs.domain import limits
from jobs.domain.states import HELD, WAITING, State, sorted_values
from jobs.execution.dependents import BlockedExecution, find_resolvable
from jobs.models import Execution, ReaperStamp
from jobs.models.execution import Trigger

# Several passes of any beat, and longer than UNCLAIMED_TIMEOUT_SECONDS.
STUCK_AFTER = timedelta(seconds=60)
# Per kind: explaining one execution costs a placement plan of its pool.
MAX_EXPLAINED = 20
MAX_BLOCKED = 10_000


@dataclass(frozen=True, slots=True)
class _ExecutionId:
    id: UUID


@dataclass(slots=True)
class StuckSearchResult:
    checked: int = 0
    unchecked: int = 0  # the deadline came first
    stuck: list[UUID] = field(default_factory=list)


def find_stuck(*, owner_id: int | None, job_id: UUID | None, deadline: float | None) -> StuckSearchResult:
    """Find stuck executions of one owner or job, or of all, until `deadline` (monotonic clock)."""
    rows = Execution.objects.all()
    if owner_id is not None:
        rows = rows.filter(job__owner_id=owner_id)
    if job_id is not None:
        rows = rows.filter(job_id=job_id)
    result = StuckSearchResult()
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        forgotten = _find_forgotten(rows)
        blocked = _find_blocked(rows)
        ready = _find_longest_ready() if owner_id is None and job_id is None else _find_longest_ready_of(rows)
    result.checked += len(forgotten)
    result.stuck += forgotten
    for page in _paginate([row for row in blocked if row.id not in forgotten]):
        if _is_past(deadline):
            result.unchecked += len(page)
            continue
        result.checked += len(page)
        result.stuck += _find_long_resolvable(page)
    for execution_id in (each for each in ready if each not in forgotten):
        if _is_past(deadline):
            result.unchecked += 1
            continue
        result.checked += 1
        if _is_placeable(execution_id):
            result.stuck.append(execution_id)
    return result


def _is_past(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline


def _find_forgotten(rows: QuerySet[Execution]) -> list[UUID]:
    """Find executions past their deadline, retries past their time, and placements without a live worker."""
    waiting = sorted_values(WAITING | {State.QUEUED})
    unfinished = rows.filter(ended_at__isnull=True, state__in=waiting)
    overdue = unfinished.filter(deadline_at__lt=Now() - STUCK_AFTER).order_by("deadline_at")
    late = rows.filter(phase=State.BACKING_OFF, retry_at__lt=Now() - STUCK_AFTER).order_by("retry_at")
    former_life = Q(incarnation__lt=F("worker__incarnation"), worker__registered_at__lt=Now() - STUCK_AFTER)
    abandoned = Q(state=State.QUEUED, placed_at__lt=Now() - STUCK_AFTER) | former_life
    # After an outage the reaper waits for one lease, which may be that long, before it marks workers as lost.
    longest = timedelta(seconds=limits.MAX_LEASE_SECONDS)
    if ReaperStamp.objects.filter(unbroken_since__lt=Now() - STUCK_AFTER - longest).exists():
        abandoned |= Q(worker__lease_until__lt=Now() - STUCK_AFTER)
    placed = rows.filter(abandoned, phase=HELD).order_by("placed_at")
    found = [id_ for each in (overdue, late, placed) for id_ in each.values_list("id", flat=True)[:MAX_EXPLAINED]]
    return list(dict.fromkeys(found))


def _find_blocked(rows: QuerySet[Execution]) -> list[BlockedExecution]:
    waiting = rows.filter(phase=State.BLOCKED, fired_at__lt=Now() - STUCK_AFTER).order_by("id")
    fields = waiting.values_list("id", "run_id", "trigger")[:MAX_BLOCKED]
    return [BlockedExecution(id_, run_id, trigger == Trigger.SCHEDULE) for id_, run_id, trigger in fields]


def _paginate(waiting: Sequence[BlockedExecution]) -> Iterator[Sequence[BlockedExecution]]:
    for first in range(0, len(waiting), limits.SWEEP_BATCH_EXECUTIONS):
        yield waiting[first : first + limits.SWEEP_BATCH_EXECUTIONS]


def _find_long_resolvable(page: Sequence[BlockedExecution]) -> list[UUID]:
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        decidable = find_resolvable(page)
        return [row.id for row in page if row.id in decidable and not _became_resolvable_recently(row)]


def _became_resolvable_recently(row: BlockedExecution) -> bool:
    """Return whether its upstreams finished a moment ago, or it was resolved meanwhile."""
    waiting = Execution.objects.filter(id=row.id, state=State.BLOCKED)
    ended = Execution.objects.filter(ended_at__gt=Now() - STUCK_AFTER)
    if row.by_instant:
        ended = ended.filter(job__dependents__job__in=waiting.values("job_id"))
    else:
        ended = ended.filter(Q(id=row.run_id) | (Q(run_id=row.run_id) & ~Q(run_id=F("id"))))
    return ended.exists() or not waiting.exists()


def _find_longest_ready() -> list[UUID]:
    parameters = {"bound": STUCK_AFTER, "limit": MAX_EXPLAINED}
    return [row.id for row in sql.fetch("find_longest_ready", parameters, _ExecutionId)]


def _find_longest_ready_of(rows: QuerySet[Execution]) -> list[UUID]:
    """Find the first ready execution of each job, then the second of each, and so on."""
    place = Window(RowNumber(), partition_by=[F("job_id"), F("job_line")], order_by=["rank", "id"])
    ready = rows.filter(phase=State.READY, ready_at__lt=Now() - STUCK_AFTER).annotate(place=place)
    return list(ready.order_by("place", "ready_at").values_list("id", flat=True)[:MAX_EXPLAINED])


def _is_placeable(execution_id: UUID) -> bool:
    try:
        explanation = explain_execution(execution_id)
    except Execution.DoesNotExist:
        return False  # deleted since it was read
    # A beat may have placed it since it was explained.
    return not explanation.held and Execution.objects.filter(id=execution_id, state=State.READY).exists()
