"""Backfills: requests to run past instants of a job's schedules, advanced step by step.

An instant that has an execution, whatever its outcome, gets no second one. A step stops when the job has enough
unfinished executions, so a backfill never floods the queue. Lock order: the job, then its backfill.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby, islice
from operator import itemgetter
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from jobs.audit.log import record_change
from jobs.db import sql, wakeups
from jobs.db.clock import database_now
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.errors import Conflict, InvalidInput
from jobs.domain.recurrence import EARLIEST, Kind, Recurrence, instants_between
from jobs.domain.recurrence.bounds import RESOLUTION
from jobs.domain.recurrence.values import parse_interval
from jobs.execution import transitions
from jobs.execution.transitions import NewExecution
from jobs.models import Backfill, BackfillState, Execution, Job, JobState, Schedule, ScheduleVersion, Trigger
from jobs.models.backfill import OPEN
from jobs.scheduling.schedules import recurrence_of

logger = logging.getLogger(__name__)

# Limits of one step; the next steps continue with the other backfills.
_MAX_EXAMINED_BACKFILLS = 1000
_MAX_ADVANCED_BACKFILLS = 100
# The step's budget of instants is divided among at most this many backfills.
_MAX_SHARES = 20
# A step starts no more backfills after this long; the next one begins with the others.
_STEP_SECONDS = 5.0
_LOCK_SECONDS = 0.25
# Executions are looked up for at least this many instants per query, or for twice the free capacity.
_MIN_LOOKUP_INSTANTS = 20

Occurrence = tuple[datetime, UUID]  # an instant and its schedule


@dataclass(frozen=True, slots=True)
class BackfillResult:
    backfills: int = 0
    created: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True)
class _OpenBackfill:
    id: UUID
    job_id: UUID
    may_proceed: bool  # its job is active and below the limit of unfinished executions


@dataclass(frozen=True, slots=True)
class _StepResult:
    new: list[Occurrence]
    cursor: datetime
    examined: int
    finished: bool


def request_backfill(job_id: UUID, *, from_at: datetime, to_at: datetime, by: str) -> Backfill:
    """Store a backfill, whose executions `advance_backfills` creates."""
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        job = Job.objects.select_for_update(no_key=True).get(id=job_id)
        if job.state == JobState.CANCELLED:
            raise Conflict("The job is cancelled; submit it again to run it.")
        if not EARLIEST <= from_at < to_at:
            raise InvalidInput("from", f"The range must begin before it ends, and not before the year {EARLIEST.year}.")
        if to_at > database_now():
            raise InvalidInput("to", "The range must lie in the past; future instants fire on schedule.")
        recurrences = _read_recurrences(job_id)
        if not recurrences:
            raise Conflict("The job has no schedule with instants of its own; execute it instead.")
        wanted = list(
            islice(_iterate_occurrences(recurrences, from_at - RESOLUTION, to_at), limits.MAX_BACKFILL_INSTANTS + 1)
        )
        if len(wanted) > limits.MAX_BACKFILL_INSTANTS:
            raise InvalidInput(
                "from",
                f"The range has more than {limits.MAX_BACKFILL_INSTANTS} instants; ask for shorter ones in turn.",
            )
        backfill = Backfill.objects.create(
            job=job,
            from_at=from_at,
            to_at=to_at,
            requested_by=by,
            expected_count=len(set(wanted) - _find_existing(wanted)),
            # Queues it behind the backfills that wait already.
            looked_at=Now(),
        )
        after = {"backfill": backfill.id, "from": from_at, "to": to_at, "expected": backfill.expected_count}
        record_change("job.backfilled", job, owner_id=job.owner_id, after=after)
    return backfill


def advance_backfills() -> BackfillResult:
    """Advance open backfills by a bounded number of instants, those that waited longest first.

    A backfill that cannot proceed or fails goes to the end of the line.
    """
    result, budget = BackfillResult(), limits.BACKFILL_BATCH_INSTANTS
    page = {"limit": _MAX_EXAMINED_BACKFILLS, "max_unfinished": limits.BACKFILL_MAX_UNFINISHED_EXECUTIONS}
    backfills = sql.fetch("read_open_backfills", page, _OpenBackfill)
    examined: list[UUID] = []
    deadline = time.monotonic() + _STEP_SECONDS
    ready = sum(backfill.may_proceed for backfill in backfills)
    share = max(budget // min(max(ready, 1), _MAX_SHARES), 1)
    for backfill in backfills:
        if budget <= 0 or result.backfills >= _MAX_ADVANCED_BACKFILLS or time.monotonic() >= deadline:
            break
        examined.append(backfill.id)
        step = _try_advance(backfill, min(share, budget)) if backfill.may_proceed else None
        if step is not None:
            budget -= step.examined
            result = BackfillResult(
                result.backfills + 1, result.created + len(step.new), result.ended + int(step.finished)
            )
    if len(examined) < len(backfills) or len(backfills) == _MAX_EXAMINED_BACKFILLS:
        _move_to_back(examined)
    return result


def cancel_backfill(backfill_id: UUID) -> None:
    """Stop creating executions, but keep those that exist; idempotent."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        rows = Backfill.objects.select_related("job").select_for_update(no_key=True, of=("self",))
        backfill = rows.get(id=backfill_id)
        if backfill.state == BackfillState.DONE:
            raise Conflict("The backfill is done; cancel its executions instead.")
        _cancel_backfills([backfill.id])
        if backfill.state != BackfillState.CANCELLED:
            job = backfill.job
            record_change("job.backfill_cancelled", job, owner_id=job.owner_id, before={"backfill": backfill.id})


def cancel_backfills_of_job(job_id: UUID) -> None:
    """Cancel the open backfills of a job, in the transaction that cancels the job."""
    _cancel_backfills(Backfill.objects.filter(job_id=job_id, state__in=OPEN).values_list("id", flat=True))


def _cancel_backfills(ids: Iterable[UUID]) -> None:
    Backfill.objects.filter(id__in=list(ids), state__in=OPEN).update(state=BackfillState.CANCELLED, ended_at=Now())


def _try_advance(backfill: _OpenBackfill, budget: int) -> _StepResult | None:
    try:
        return _advance_backfill(backfill.id, backfill.job_id, budget)
    except Exception:
        if not connection.is_usable():
            raise
        # A backfill that fails must not stop the others.
        logger.exception("Could not advance backfill %s; retrying later", backfill.id)
        return None


def _move_to_back(ids: Sequence[UUID]) -> None:
    """Skip locked backfills, which another transaction is advancing or cancelling."""
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        rows = Backfill.objects.select_for_update(no_key=True, skip_locked=True).filter(id__in=ids)
        free = list(rows.values_list("id", flat=True))
        Backfill.objects.filter(id__in=free).update(looked_at=Now())


def _advance_backfill(backfill_id: UUID, job_id: UUID, budget: int) -> _StepResult | None:
    with transaction.atomic(), with_timeouts(statement_seconds=10, lock_seconds=_LOCK_SECONDS):
        # A locked job is being advanced or changed by another transaction; the next step comes soon.
        job = Job.objects.select_for_update(no_key=True, skip_locked=True).filter(id=job_id).first()
        if job is None or job.state != JobState.ACTIVE:
            return None
        rows = Backfill.objects.select_for_update(no_key=True, skip_locked=True)
        backfill = rows.filter(id=backfill_id, state__in=OPEN).first()
        if backfill is None:
            return None
        unfinished = Execution.objects.filter(job_id=job_id, ended_at__isnull=True)
        capacity = (
            limits.BACKFILL_MAX_UNFINISHED_EXECUTIONS - unfinished[: limits.BACKFILL_MAX_UNFINISHED_EXECUTIONS].count()
        )
        step = _plan_step(backfill, max(capacity, 0), budget)
        step = replace(step, new=_create_executions(job_id, step.new))
        backfill.cursor = step.cursor
        backfill.created_count += len(step.new)
        backfill.state = BackfillState.DONE if step.finished else BackfillState.RUNNING
        backfill.ended_at = database_now() if step.finished else None
        backfill.save(update_fields=["cursor", "created_count", "state", "ended_at"])
        if step.new:
            transaction.on_commit(wakeups.wake_beat)
    return step


def _plan_step(backfill: Backfill, capacity: int, budget: int) -> _StepResult:
    """Choose the next instants that have no execution, up to the capacity."""
    cursor = backfill.cursor or backfill.from_at - RESOLUTION
    if not capacity:
        return _StepResult([], cursor, 0, finished=False)
    # Schedules that share an instant advance together: the cursor cannot lie between them.
    occurrences = _iterate_occurrences(_read_recurrences(backfill.job_id), cursor, backfill.to_at)
    instants = (list(together) for _, together in groupby(occurrences, key=itemgetter(0)))
    new: list[Occurrence] = []
    seen = 0
    # Stops at the capacity, since instants examined but not created are examined again.
    while chunk := list(islice(instants, max(2 * (capacity - len(new)), _MIN_LOOKUP_INSTANTS))):
        existing = _find_existing([occurrence for group in chunk for occurrence in group])
        for group in chunk:
            if seen >= budget:
                return _StepResult(new, cursor, seen, finished=False)
            seen += len(group)
            missing = [occurrence for occurrence in group if occurrence not in existing]
            if len(missing) > capacity - len(new):
                return _StepResult(new + missing[: capacity - len(new)], cursor, seen, finished=False)
            new += missing
            cursor = group[0][0]
    return _StepResult(new, cursor, seen, finished=True)


def _create_executions(job_id: UUID, occurrences: Sequence[Occurrence]) -> list[Occurrence]:
    """Create the executions that a beat has not; return those created."""
    ids = transitions.create_executions(
        [
            NewExecution(job_id, Trigger.BACKFILL, schedule_id=schedule_id, scheduled_for=instant)
            for instant, schedule_id in occurrences
        ]
    )
    return list(Execution.objects.filter(id__in=ids).values_list("scheduled_for", "schedule_id"))


def _find_existing(occurrences: Sequence[Occurrence]) -> set[Occurrence]:
    if not occurrences:
        return set()
    rows = Execution.objects.filter(
        schedule_id__in={schedule_id for _, schedule_id in occurrences},
        scheduled_for__gte=min(occurrences)[0],
        scheduled_for__lte=max(occurrences)[0],
    )
    return set(rows.values_list("scheduled_for", "schedule_id"))


def _iterate_occurrences(recurrences: Sequence[Recurrence], after: datetime, until: datetime) -> Iterator[Occurrence]:
    """Yield the instants of all schedules in order of time."""

    def iterate(recurrence: Recurrence, schedule_id: UUID) -> Iterator[Occurrence]:
        return ((instant, schedule_id) for instant in instants_between(recurrence, after, until))

    return heapq.merge(*(iterate(recurrence, recurrence.key) for recurrence in recurrences if recurrence.key))


def _read_recurrences(job_id: UUID) -> list[Recurrence]:
    """Read the present recurrences, without fixed delays, which have no instants, and quarantined schedules."""
    rows = Schedule.objects.filter(job_id=job_id, quarantined_at__isnull=True).exclude(kind=Kind.DELAY).order_by("id")
    created = dict(
        ScheduleVersion.objects.filter(schedule__job_id=job_id, number=1).values_list("schedule_id", "from_at")
    )
    return [_extend_default_start(recurrence_of(row), created.get(row.id)) for row in rows]


def _extend_default_start(recurrence: Recurrence, created_at: datetime | None) -> Recurrence:
    """Let a schedule whose start is its creation, the default, reach back before it."""
    if recurrence.starts_at != created_at:
        return recurrence
    if recurrence.kind is not Kind.EVERY:
        return replace(recurrence, starts_at=EARLIEST)
    every = parse_interval(recurrence.expression)
    return replace(recurrence, starts_at=recurrence.starts_at - (recurrence.starts_at - EARLIEST) // every * every)
