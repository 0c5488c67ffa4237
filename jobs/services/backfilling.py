"""Past ranges of schedules, run after all: asked for, advanced step by step, cancelled.

An instant that has an execution already, whatever became of it, gets no second one; and a step stops where the job has
enough to do, so that a backfill is as slow as the job and never floods the queue. Locks: the job, then its backfill.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby, islice
from operator import itemgetter
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from jobs import conf, wakeups
from jobs.errors import Conflict, InvalidInput
from jobs.models import Backfill, BackfillState, Execution, Job, JobState, Schedule, ScheduleVersion, Trigger
from jobs.models.backfill import OPEN
from jobs.recurrence import EARLIEST, Kind, Recurrence, instants_between
from jobs.recurrence.values import seconds_of
from jobs.services import transitions
from jobs.services.audit_trail import record
from jobs.services.database import bounded
from jobs.services.schedules import database_now, recurrence_of
from jobs.services.transitions import NewExecution
from jobs.states import TERMINAL, State

_JUST_BEFORE = timedelta(microseconds=1)
_UNFINISHED = [state.value for state in State if state not in TERMINAL]
# More that wait are looked at in the next step.
_MOST_BACKFILLS = 100

Occurrence = tuple[datetime, UUID]  # an instant and its schedule


@dataclass(frozen=True, slots=True)
class AdvanceResult:
    backfills: int = 0
    created: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True)
class _Step:
    new: list[Occurrence]
    cursor: datetime
    looked_at: int
    finished: bool


def request_backfill(job_id: UUID, *, from_at: datetime, to_at: datetime, by: str) -> Backfill:
    """Writes down what is asked for; the executions are created by `advance_backfills`."""
    with transaction.atomic(), bounded(statement_seconds=10):
        job = Job.objects.select_for_update(no_key=True).get(id=job_id)
        if job.state == JobState.CANCELLED:
            raise Conflict("The job is cancelled; submit it anew to run it.")
        if not EARLIEST <= from_at < to_at:
            raise InvalidInput("from", f"The range must begin before it ends, and not before the year {EARLIEST.year}.")
        if to_at > database_now():
            raise InvalidInput("to", "The range must lie in the past: what is to come fires by itself.")
        recurrences = _recurrences(job_id)
        if not recurrences:
            raise Conflict("The job has no schedule with instants of its own; execute it instead.")
        wanted = list(islice(_occurrences(recurrences, from_at - _JUST_BEFORE, to_at), conf.MAX_BACKFILL_INSTANTS + 1))
        if len(wanted) > conf.MAX_BACKFILL_INSTANTS:
            raise InvalidInput(
                "from", f"The range has more than {conf.MAX_BACKFILL_INSTANTS} instants; ask for shorter ones in turn."
            )
        backfill = Backfill.objects.create(
            job=job,
            from_at=from_at,
            to_at=to_at,
            requested_by=by,
            expected_count=len(set(wanted) - _existing(wanted)),
        )
        asked = {"backfill": backfill.id, "from": from_at, "to": to_at, "expected": backfill.expected_count}
        record("job.backfilled", job, owner_id=job.owner_id, after=asked)
    return backfill


def advance_backfills() -> AdvanceResult:
    """One step: a bounded number of instants over all open backfills, the oldest first."""
    result, budget = AdvanceResult(), conf.BACKFILL_BATCH_INSTANTS
    open_ones = Backfill.objects.filter(state__in=OPEN).order_by("id").values_list("id", "job_id")[:_MOST_BACKFILLS]
    for backfill_id, job_id in list(open_ones):
        if budget <= 0:
            break
        step = _advance(backfill_id, job_id, budget)
        if step is not None:
            budget -= step.looked_at
            result = AdvanceResult(
                result.backfills + 1, result.created + len(step.new), result.ended + int(step.finished)
            )
    return result


def cancel_backfill(backfill_id: UUID) -> None:
    """Creates no more executions; those that it has created run on. Doing it again changes nothing."""
    with transaction.atomic(), bounded(statement_seconds=5):
        rows = Backfill.objects.select_related("job").select_for_update(no_key=True, of=("self",))
        backfill = rows.get(id=backfill_id)
        if backfill.state == BackfillState.DONE:
            raise Conflict("The backfill is done; cancel its executions instead.")
        _cancel([backfill.id])
        if backfill.state != BackfillState.CANCELLED:
            job = backfill.job
            record("job.backfill_cancelled", job, owner_id=job.owner_id, before={"backfill": backfill.id})


def stop_backfills(job_id: UUID) -> None:
    """Of a job that is being cancelled, in its transaction."""
    _cancel(Backfill.objects.filter(job_id=job_id, state__in=OPEN).values_list("id", flat=True))


def _cancel(ids: Iterable[UUID]) -> None:
    Backfill.objects.filter(id__in=list(ids), state__in=OPEN).update(state=BackfillState.CANCELLED, ended_at=Now())


def _advance(backfill_id: UUID, job_id: UUID, budget: int) -> _Step | None:
    with transaction.atomic(), bounded(statement_seconds=10):
        # Somebody else who holds the job is advancing it or changing it: the next step comes soon.
        job = Job.objects.select_for_update(no_key=True, skip_locked=True).filter(id=job_id).first()
        if job is None or job.state != JobState.ACTIVE:
            return None
        backfill = Backfill.objects.select_for_update(no_key=True).filter(id=backfill_id, state__in=OPEN).first()
        if backfill is None:
            return None
        room = conf.BACKFILL_MAX_WAITING - Execution.objects.filter(job_id=job_id, state__in=_UNFINISHED).count()
        step = _plan(backfill, max(room, 0), budget)
        step = replace(step, new=_create(job_id, step.new))
        backfill.cursor = step.cursor
        backfill.created_count += len(step.new)
        backfill.state = BackfillState.DONE if step.finished else BackfillState.RUNNING
        backfill.ended_at = database_now() if step.finished else None
        backfill.save(update_fields=["cursor", "created_count", "state", "ended_at"])
        if step.new:
            transaction.on_commit(wakeups.wake_beat)
    return step


def _plan(backfill: Backfill, room: int, budget: int) -> _Step:
    """The next instants that have no execution, as many as there is room for."""
    cursor = backfill.cursor or backfill.from_at - _JUST_BEFORE
    if not room:
        return _Step([], cursor, 0, finished=False)
    looked_at: list[list[Occurrence]] = []
    seen = 0
    # Schedules that share an instant are settled together: the cursor cannot stand between them.
    for _, together in groupby(_occurrences(_recurrences(backfill.job_id), cursor, backfill.to_at), key=itemgetter(0)):
        looked_at.append(list(together))
        seen += len(looked_at[-1])
        if seen >= budget:
            break
    existing = _existing([occurrence for group in looked_at for occurrence in group])
    new: list[Occurrence] = []
    for group in looked_at:
        missing = [occurrence for occurrence in group if occurrence not in existing]
        if len(missing) > room - len(new):
            return _Step(new + missing[: room - len(new)], cursor, seen, finished=False)
        new += missing
        cursor = group[0][0]
    return _Step(new, cursor, seen, finished=seen < budget)


def _create(job_id: UUID, occurrences: Sequence[Occurrence]) -> list[Occurrence]:
    """Those that were really created: a beat that catches up may have been faster."""
    ids = transitions.create_executions(
        [
            NewExecution(job_id, Trigger.BACKFILL, schedule_id=schedule_id, scheduled_for=instant)
            for instant, schedule_id in occurrences
        ]
    )
    return list(Execution.objects.filter(id__in=ids).values_list("scheduled_for", "schedule_id"))


def _existing(occurrences: Sequence[Occurrence]) -> set[Occurrence]:
    if not occurrences:
        return set()
    rows = Execution.objects.filter(
        schedule_id__in={schedule_id for _, schedule_id in occurrences},
        scheduled_for__gte=min(occurrences)[0],
        scheduled_for__lte=max(occurrences)[0],
    )
    return set(rows.values_list("scheduled_for", "schedule_id"))


def _occurrences(recurrences: Sequence[Recurrence], after: datetime, until: datetime) -> Iterator[Occurrence]:
    """In order of time, over all schedules."""

    def of(recurrence: Recurrence, schedule_id: UUID) -> Iterator[Occurrence]:
        return ((instant, schedule_id) for instant in instants_between(recurrence, after, until))

    return heapq.merge(*(of(recurrence, recurrence.key) for recurrence in recurrences if recurrence.key))


def _recurrences(job_id: UUID) -> list[Recurrence]:
    """As they are now; a fixed delay has no instants of its own, and a broken recurrence none that can be computed."""
    rows = Schedule.objects.filter(job_id=job_id, quarantined_at__isnull=True).exclude(kind=Kind.DELAY).order_by("id")
    created = dict(
        ScheduleVersion.objects.filter(schedule__job_id=job_id, number=1).values_list("schedule_id", "from_at")
    )
    return [_without_default_start(recurrence_of(row), created.get(row.id)) for row in rows]


def _without_default_start(recurrence: Recurrence, created_at: datetime | None) -> Recurrence:
    """A start that nobody asked for is the creation; the past of such a schedule reaches back as far as wanted."""
    if recurrence.starts_at != created_at:
        return recurrence
    if recurrence.kind is not Kind.EVERY:
        return replace(recurrence, starts_at=EARLIEST)
    every = seconds_of(recurrence.expression)
    return replace(recurrence, starts_at=recurrence.starts_at - (recurrence.starts_at - EARLIEST) // every * every)
