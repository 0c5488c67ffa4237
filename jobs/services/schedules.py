"""Schedules and their history: created, paused, resumed, stopped.

What is in force changes only under the rows' locks and only after every instant that is due was settled, so that no
instant falls between two versions; and each version says from when to when its instants counted, so that anybody can
recompute them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import connection

from jobs.errors import InvalidInput
from jobs.models import DroppedRange, DropReason, Execution, Job, Schedule, ScheduleVersion
from jobs.models.ids import new_id
from jobs.recurrence import EARLIEST, Kind, Recurrence, count_instants, jittered, parse_recurrence
from jobs.services import firing
from jobs.services.job_spec import ScheduleSpec
from jobs.states import TERMINAL, State

# The names under which users write the kinds.
KIND_FIELDS = {
    Kind.CRON: "cron",
    Kind.EVERY: "every_seconds",
    Kind.AT: "at",
    Kind.SOLAR: "solar",
    Kind.DELAY: "delay_seconds",
}
_JUST_BEFORE = timedelta(microseconds=1)


def recurrence_of(row: Schedule | ScheduleVersion) -> Recurrence:
    return Recurrence(
        kind=Kind(row.kind),
        expression=row.expression,
        timezone=row.timezone,
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        excluded=frozenset(row.excluded_dates),
        key=row.schedule_id if isinstance(row, ScheduleVersion) else row.id,
    )


def database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def plan_schedule(index: int, wanted: ScheduleSpec, now: datetime) -> Schedule:
    """A schedule that is not stored yet; InvalidInput names what is wrong, and where in the request it stands."""
    written = KIND_FIELDS[wanted.kind]
    schedule_id = new_id()
    # A single instant needs no start; with one, a past instant would be called outside its bounds.
    starts_at = wanted.starts_at or (EARLIEST if wanted.kind is Kind.AT else now)
    try:
        recurrence = parse_recurrence(
            kind=wanted.kind,
            expression=wanted.expression,
            timezone=wanted.timezone,
            starts_at=starts_at,
            ends_at=wanted.ends_at,
            excluded=wanted.excluded_dates,
            key=schedule_id,
        )
    except InvalidInput as error:
        names = {"expression": written, "kind": written, "excluded": "excluded_dates"}
        raise InvalidInput(f"schedules.{index}.{names.get(error.field, error.field)}", error.message) from None
    # A fixed delay runs for the first time at once: there is nothing yet to be delayed after.
    first = recurrence.next_after(now - _JUST_BEFORE if wanted.kind is Kind.DELAY else now)
    if first is None:
        raise InvalidInput(
            f"schedules.{index}.{written}", "The schedule lies in the past: it has no instant left; choose a later one."
        )
    return Schedule(
        id=schedule_id,
        kind=recurrence.kind.value,
        expression=recurrence.expression,
        timezone=recurrence.timezone,
        starts_at=starts_at,
        ends_at=recurrence.ends_at,
        jitter_seconds=wanted.jitter_seconds,
        catch_up=wanted.catch_up.value,
        catch_up_window_seconds=wanted.catch_up_window_seconds,
        excluded_dates=sorted(wanted.excluded_dates),
        max_count=wanted.max_count,
        next_instant=first,
        next_fire_at=jittered(schedule_id, first, wanted.jitter_seconds),
    )


def create_schedules(job: Job, planned: Sequence[Schedule], now: datetime) -> None:
    for schedule in planned:
        schedule.job = job
    Schedule.objects.bulk_create(planned)
    for schedule in planned:
        _begin_version(schedule, from_at=now - _JUST_BEFORE if schedule.kind == Kind.DELAY else now)


def pause_schedules(job: Job) -> datetime:
    """Settles what is due, then stops the schedules; returns from when."""
    now = _settle_and_lock(job)
    for schedule in _locked(job):
        _end_version(schedule, now)
        if schedule.next_instant is not None or schedule.kind == Kind.DELAY:
            _begin_version(schedule, from_at=now, paused=True)
    job.schedules.update(next_instant=None, next_fire_at=None)
    return now


def resume_schedules(job: Job) -> None:
    """Counts the instants of the pause as dropped, and goes on from now."""
    now = database_now()
    for schedule in _locked(job):
        paused = schedule.history.filter(to_at__isnull=True, paused=True).first()
        if paused is None:
            continue  # it had no instant left when it was paused
        schedule.settled_count += _drop_paused(schedule, paused.from_at, now)
        left = schedule.max_count is None or schedule.settled_count < schedule.max_count
        # A fixed delay starts anew at once, so that this very moment is an instant of what is in force again.
        boundary = now - _JUST_BEFORE if schedule.kind == Kind.DELAY else now
        _end_version(schedule, boundary)
        under_way = schedule.kind == Kind.DELAY and _is_under_way(schedule)
        schedule.next_instant = _resumed(schedule, now) if left and not under_way else None
        schedule.next_fire_at = schedule.next_instant and jittered(
            schedule.id, schedule.next_instant, schedule.jitter_seconds
        )
        schedule.save(update_fields=["next_instant", "next_fire_at", "settled_count"])
        if schedule.next_instant is not None or under_way:
            _begin_version(schedule, from_at=boundary)


def stop_schedules(job: Job) -> None:
    """For good: settles what is due, and ends the history there."""
    now = _settle_and_lock(job)
    for schedule in _locked(job):
        paused = schedule.history.filter(to_at__isnull=True, paused=True).first()
        if paused is not None:
            schedule.settled_count += _drop_paused(schedule, paused.from_at, now)
            schedule.save(update_fields=["settled_count"])
        _end_version(schedule, now)
    job.schedules.update(next_instant=None, next_fire_at=None)


def _settle_and_lock(job: Job) -> datetime:
    """Afterwards everything up to the returned moment is settled, and the rows are ours until the transaction ends."""
    _locked(job)
    now = database_now()
    firing.settle_job(job.id, until=now)
    return now


def _locked(job: Job) -> Sequence[Schedule]:
    return list(job.schedules.select_for_update(no_key=True).order_by("id"))


def _resumed(schedule: Schedule, now: datetime) -> datetime | None:
    recurrence = recurrence_of(schedule)
    if recurrence.kind is not Kind.DELAY:
        return recurrence.next_after(now)
    again = max(now, recurrence.starts_at)
    return replace(recurrence, starts_at=again).next_after(again - _JUST_BEFORE)


def _is_under_way(schedule: Schedule) -> bool:
    """Whether a run of it will end and arm it; waits for one that is just ending, which saw the job still paused."""
    unfinished = [state.value for state in State if state not in TERMINAL]
    runs = Execution.objects.filter(job_id=schedule.job_id, state__in=unfinished, schedule=schedule)
    return bool(list(runs.select_for_update(no_key=True).order_by("id").values_list("id")))


def _drop_paused(schedule: Schedule, after: datetime, until: datetime) -> int:
    recurrence = recurrence_of(schedule)
    if recurrence.kind is Kind.DELAY:
        return 0
    count = count_instants(recurrence, after, until)
    if schedule.max_count is not None:
        count = min(count, schedule.max_count - schedule.settled_count)
    first = recurrence.next_after(after)
    if count and first is not None:
        DroppedRange.objects.create(
            schedule=schedule, first=first, last=until, count=count, reason=DropReason.PAUSED, created_at=until
        )
    return count


def _begin_version(schedule: Schedule, *, from_at: datetime, paused: bool = False) -> None:
    number = (schedule.history.order_by("-number").values_list("number", flat=True).first() or 0) + 1
    ScheduleVersion.objects.create(
        schedule=schedule,
        number=number,
        from_at=from_at,
        paused=paused,
        kind=schedule.kind,
        expression=schedule.expression,
        timezone=schedule.timezone,
        starts_at=schedule.starts_at,
        ends_at=schedule.ends_at,
        jitter_seconds=schedule.jitter_seconds,
        excluded_dates=schedule.excluded_dates,
        max_count=schedule.max_count,
    )


def _end_version(schedule: Schedule, now: datetime) -> None:
    schedule.history.filter(to_at__isnull=True).update(to_at=now)
