"""Schedules and their history: created, paused, resumed, stopped.

What is in force changes only under the rows' locks and only after every instant that is due was settled, so that no
instant falls between two versions; and each version says from when to when its instants counted, so that anybody can
recompute them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection

from jobs import sql
from jobs.errors import InvalidInput
from jobs.models import Calendar, DroppedRange, DropReason, Execution, Job, Schedule, ScheduleVersion
from jobs.models.ids import new_id
from jobs.recurrence import EARLIEST, Kind, Recurrence, count_instants, jittered, parse_recurrence
from jobs.services import firing
from jobs.services.inserting import insert_rows
from jobs.services.job_spec import ScheduleSpec
from jobs.services.locking import UNFINISHED

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
    return Recurrence.of(row, key=row.schedule_id if isinstance(row, ScheduleVersion) else row.id)


def database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def plan_schedule(
    index: int,
    wanted: ScheduleSpec,
    now: datetime,
    *,
    calendar: Calendar | None = None,
    schedule_id: UUID | None = None,
) -> Schedule:
    """A schedule that is not stored yet; InvalidInput names what is wrong, and where in the request it stands."""
    schedule = shape_schedule(index, wanted, now, schedule_id=schedule_id or new_id(), calendar=calendar)
    # A fixed delay runs for the first time at once: there is nothing yet to be delayed after.
    first = recurrence_of(schedule).next_after(boundary(schedule, now))
    if first is None:
        raise InvalidInput(
            f"schedules.{index}.{field_that_ended(schedule, now)}",
            "The schedule lies in the past: it has no instant left; choose a later one.",
        )
    arm(schedule, first)
    return schedule


def field_that_ended(schedule: Schedule, now: datetime) -> str:
    """Of one that has no instant left: the name under which its user wrote why."""
    if schedule.ends_at is not None and schedule.ends_at <= now:
        return "ends_at"
    return KIND_FIELDS[Kind(schedule.kind)]


def shape_schedule(
    index: int, wanted: ScheduleSpec, now: datetime, *, schedule_id: UUID, calendar: Calendar | None
) -> Schedule:
    """The row that a spec asks for, without a next instant yet."""
    written = KIND_FIELDS[wanted.kind]
    # A single instant needs no start; with one, a past instant would be called outside its bounds.
    starts_at = wanted.starts_at or (EARLIEST if wanted.kind is Kind.AT else now)
    try:
        recurrence = parse_recurrence(
            kind=wanted.kind,
            expression=wanted.expression,
            timezone=wanted.timezone,
            starts_at=starts_at,
            ends_at=wanted.ends_at,
            excluded={*wanted.excluded_dates, *(calendar.dates if calendar else ())},
            key=schedule_id,
        )
    except InvalidInput as error:
        dates = "excluded_dates" if wanted.excluded_dates or calendar is None else "calendar"
        names = {"expression": written, "kind": written, "excluded": dates}
        raise InvalidInput(f"schedules.{index}.{names.get(error.field, error.field)}", error.message) from None
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
        excluded_dates=sorted(recurrence.excluded),
        calendar=calendar,
        own_excluded_dates=sorted(set(wanted.excluded_dates)) if calendar else None,
        max_count=wanted.max_count,
    )


def create_schedules(job: Job, planned: Sequence[Schedule], now: datetime, *, paused: bool = False) -> None:
    for schedule in planned:
        schedule.job = job
        if paused:
            arm(schedule, None)
    store_schedules(planned, now, paused=paused)


def store_schedules(planned: Sequence[Schedule], now: datetime, *, paused: bool = False) -> None:
    """New ones, of any number of jobs."""
    insert_rows(planned)
    begin_versions(planned, now, paused=paused)


def pause_schedules(job: Job) -> datetime:
    """Settles what is due, then stops the schedules; returns from when."""
    now = settle_and_lock(job)
    rows = locked(job)
    end_versions(rows, now)
    begin_versions([s for s in rows if s.next_instant is not None or s.kind == Kind.DELAY], now, paused=True)
    job.schedules.update(next_instant=None, next_fire_at=None)
    return now


def resume_schedules(job: Job) -> None:
    """Counts the instants of the pause as dropped, and goes on from now."""
    now = database_now()
    for schedule in locked(job):
        paused = schedule.history.filter(to_at__isnull=True, paused=True).first()
        if paused is None:
            continue  # it had no instant left when it was paused
        schedule.settled_count += drop_paused(schedule, paused.from_at, now)
        left = schedule.max_count is None or schedule.settled_count < schedule.max_count
        end_versions([schedule], boundary(schedule, now))
        under_way = schedule.kind == Kind.DELAY and is_under_way(schedule)
        arm(schedule, first_of(schedule, now) if left and not under_way else None)
        schedule.save(update_fields=["next_instant", "next_fire_at", "settled_count"])
        if schedule.next_instant is not None or under_way:
            begin_versions([schedule], now)


def stop_schedules(job: Job) -> datetime:
    """For good: settles what is due, and ends the history there."""
    now = settle_and_lock(job)
    end_schedules(locked(job), now)
    return now


def end_schedules(rows: Sequence[Schedule], now: datetime) -> None:
    """Of rows that are ours and settled up to now."""
    since = paused_since(rows)
    for schedule in rows:
        if schedule.id in since:
            schedule.settled_count += drop_paused(schedule, since[schedule.id], now)
            schedule.save(update_fields=["settled_count"])
    end_versions(rows, now)
    Schedule.objects.filter(id__in=[s.id for s in rows]).update(next_instant=None, next_fire_at=None)


def delete_schedules(rows: Sequence[Schedule], now: datetime) -> None:
    """Of rows that have ended: they stay for the history, and hold no calendar."""
    Schedule.objects.filter(id__in=[s.id for s in rows]).update(deleted_at=now, calendar=None, own_excluded_dates=None)


def settle_and_lock(job: Job) -> datetime:
    """Afterwards everything up to the returned moment is settled, and the rows are ours until the transaction ends."""
    locked(job)
    now = database_now()
    firing.settle_job(job.id, until=now)
    return now


def settle_until(now: datetime, job_ids: Collection[UUID], *, ending: Collection[UUID]) -> None:
    """Settles what is due of jobs whose schedules are ours; what does not end now may wait for its jittered moment."""
    due = Schedule.objects.filter(job_id__in=job_ids, next_instant__lte=now).values_list("job_id", "id")
    ending_of = defaultdict[UUID, list[UUID]](list)
    for job_id, schedule_id in due:
        ending_of[job_id] += [schedule_id] if schedule_id in ending else []
    for job_id in sorted(ending_of):
        firing.settle_job(job_id, until=now, ending=ending_of[job_id])


def locked(job: Job) -> list[Schedule]:
    return list(job.schedules.select_for_update(no_key=True).order_by("id"))


def arm(schedule: Schedule, instant: datetime | None) -> None:
    schedule.next_instant = instant
    schedule.next_fire_at = instant and jittered(schedule.id, instant, schedule.jitter_seconds)


def boundary(schedule: Schedule, now: datetime) -> datetime:
    """What comes into force now has its instants after this; a fixed delay starts at once, so that now is one."""
    return now - _JUST_BEFORE if schedule.kind == Kind.DELAY else now


def first_of(schedule: Schedule, now: datetime) -> datetime | None:
    """Its first instant if it comes into force now."""
    recurrence = recurrence_of(schedule)
    if recurrence.kind is not Kind.DELAY:
        return recurrence.next_after(now)
    again = max(now, recurrence.starts_at)
    return replace(recurrence, starts_at=again).next_after(again - _JUST_BEFORE)


def is_under_way(schedule: Schedule) -> bool:
    """Whether a run of it will end and arm it; waits for one that is just ending, which saw it as it was before."""
    runs = Execution.objects.filter(job_id=schedule.job_id, state__in=UNFINISHED, schedule=schedule)
    return bool(list(runs.select_for_update(no_key=True).order_by("id").values_list("id")))


def paused_since(rows: Sequence[Schedule]) -> dict[UUID, datetime]:
    """Of those whose pause is in force; one that had no instant left when it was paused is not among them."""
    versions = ScheduleVersion.objects.filter(schedule__in=rows, to_at__isnull=True, paused=True)
    return dict(versions.values_list("schedule_id", "from_at"))


def drop_paused(schedule: Schedule, after: datetime, until: datetime) -> int:
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


def begin_versions(rows: Sequence[Schedule], now: datetime, *, paused: bool = False) -> None:
    """Of rows as they are stored."""
    if rows:
        of = [schedule.id for schedule in rows]
        parameters = {"ids": [new_id() for _ in of], "schedules": of, "now": now, "paused": paused}
        sql.execute("begin_schedule_versions", parameters)


def end_versions(rows: Sequence[Schedule], at: datetime) -> None:
    ScheduleVersion.objects.filter(schedule__in=rows, to_at__isnull=True).update(to_at=at)
