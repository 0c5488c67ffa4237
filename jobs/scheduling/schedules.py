"""Schedules and their history: create, pause, resume, stop.

A schedule changes only under its row lock and only after every due instant has fired, so that no instant falls between
two versions. Each version records from when to when it was in force, so that its instants can be recomputed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from jobs.db import sql
from jobs.db.bulk_insert import insert_rows
from jobs.db.clock import database_now
from jobs.domain.errors import InvalidInput
from jobs.domain.job_spec import ScheduleSpec
from jobs.domain.recurrence import EARLIEST, Kind, Recurrence, add_jitter, count_instants, parse_recurrence
from jobs.domain.recurrence.bounds import RESOLUTION
from jobs.models import Calendar, DroppedRange, DropReason, Execution, Job, Schedule, ScheduleVersion
from jobs.models.ids import new_id
from jobs.scheduling import firing

# Field names in the API.
FIELD_OF_KIND = {
    Kind.CRON: "cron",
    Kind.EVERY: "every_seconds",
    Kind.AT: "at",
    Kind.SOLAR: "solar",
    Kind.DELAY: "delay_seconds",
}
_VERSIONED_FIELDS = (
    "kind",
    "expression",
    "timezone",
    "starts_at",
    "ends_at",
    "jitter_seconds",
    "excluded_dates",
    "max_count",
)


def recurrence_of(row: Schedule | ScheduleVersion) -> Recurrence:
    return Recurrence.of(row, key=row.schedule_id if isinstance(row, ScheduleVersion) else row.id)


def prepare_schedule(
    index: int,
    spec: ScheduleSpec,
    now: datetime,
    *,
    calendar: Calendar | None = None,
    schedule_id: UUID | None = None,
) -> Schedule:
    """Build a schedule without storing it; InvalidInput names the field of the request."""
    schedule = build_schedule(index, spec, now, schedule_id=schedule_id or new_id(), calendar=calendar)
    # A fixed delay fires at once the first time: no run precedes it.
    first = recurrence_of(schedule).next_after(version_boundary(schedule, now))
    if first is None:
        raise InvalidInput(
            f"schedules.{index}.{find_exhausted_field(schedule, now)}",
            "The schedule lies in the past: it has no instant left; choose a later one.",
        )
    arm(schedule, first)
    return schedule


def find_exhausted_field(schedule: Schedule, now: datetime) -> str:
    """Return the request field that leaves the schedule without an instant."""
    if schedule.ends_at is not None and schedule.ends_at <= now:
        return "ends_at"
    return FIELD_OF_KIND[Kind(schedule.kind)]


def build_schedule(
    index: int, spec: ScheduleSpec, now: datetime, *, schedule_id: UUID, calendar: Calendar | None
) -> Schedule:
    """Build the row of a spec, without a next instant."""
    field = FIELD_OF_KIND[spec.kind]
    # With a start of now, a past single instant would be refused as outside its bounds.
    starts_at = spec.starts_at or (EARLIEST if spec.kind is Kind.AT else now)
    try:
        recurrence = parse_recurrence(
            kind=spec.kind,
            expression=spec.expression,
            timezone=spec.timezone,
            starts_at=starts_at,
            ends_at=spec.ends_at,
            excluded={*spec.excluded_dates, *(calendar.dates if calendar else ())},
            key=schedule_id,
        )
    except InvalidInput as error:
        dates = "excluded_dates" if spec.excluded_dates or calendar is None else "calendar"
        names = {"expression": field, "kind": field, "excluded": dates}
        raise InvalidInput(f"schedules.{index}.{names.get(error.field, error.field)}", error.message) from None
    return Schedule(
        id=schedule_id,
        kind=recurrence.kind.value,
        expression=recurrence.expression,
        timezone=recurrence.timezone,
        starts_at=starts_at,
        ends_at=recurrence.ends_at,
        jitter_seconds=spec.jitter_seconds,
        catch_up=spec.catch_up.value,
        catch_up_window_seconds=spec.catch_up_window_seconds,
        excluded_dates=sorted(recurrence.excluded),
        calendar=calendar,
        own_excluded_dates=sorted(set(spec.excluded_dates)) if calendar else None,
        max_count=spec.max_count,
    )


def create_schedules(job: Job, planned: Sequence[Schedule], now: datetime, *, paused: bool = False) -> None:
    for schedule in planned:
        schedule.job = job
        if paused:
            arm(schedule, None)
    store_schedules(planned, now, paused=paused)


def store_schedules(planned: Sequence[Schedule], now: datetime, *, paused: bool = False) -> None:
    """Insert new schedules of any number of jobs."""
    insert_rows(planned, build_first_versions(planned, now, paused=paused))


def build_first_versions(planned: Sequence[Schedule], now: datetime, *, paused: bool = False) -> list[ScheduleVersion]:
    """Build the first versions of new schedules; a fixed delay starts at once, so now is one of its instants."""
    return [
        ScheduleVersion(
            schedule=schedule,
            number=1,
            from_at=now if paused else version_boundary(schedule, now),
            paused=paused,
            settled_before=schedule.settled_count,
            **{name: getattr(schedule, name) for name in _VERSIONED_FIELDS},
        )
        for schedule in planned
    ]


def pause_schedules(job: Job) -> datetime:
    """Fire due instants, then stop the schedules; return since when."""
    now = lock_and_fire_due(job)
    rows = lock_schedules(job)
    end_versions(rows, now)
    begin_versions([s for s in rows if s.next_instant is not None or s.kind == Kind.DELAY], now, paused=True)
    job.schedules.update(next_instant=None, next_fire_at=None)
    return now


def resume_schedules(job: Job) -> None:
    """Count the instants of the pause as dropped, and fire again from now on."""
    now = database_now()
    for schedule in lock_schedules(job):
        paused = schedule.history.filter(to_at__isnull=True, paused=True).first()
        if paused is None:
            continue  # it had no instant left when it was paused
        schedule.settled_count += drop_paused_instants(schedule, paused.from_at, now)
        left = schedule.max_count is None or schedule.settled_count < schedule.max_count
        end_versions([schedule], version_boundary(schedule, now))
        under_way = schedule.kind == Kind.DELAY and has_unfinished_run(schedule)
        arm(schedule, find_first_instant(schedule, now) if left and not under_way else None)
        schedule.save(update_fields=["next_instant", "next_fire_at", "settled_count"])
        if schedule.next_instant is not None or under_way:
            begin_versions([schedule], now)


def stop_schedules(job: Job) -> datetime:
    """Fire due instants and end the schedules; return when."""
    now = lock_and_fire_due(job)
    end_schedules(lock_schedules(job), now)
    return now


def end_schedules(rows: Sequence[Schedule], now: datetime) -> None:
    """End locked schedules whose instants up to now have fired."""
    paused_since = read_paused_since(rows)
    for schedule in rows:
        if schedule.id in paused_since:
            schedule.settled_count += drop_paused_instants(schedule, paused_since[schedule.id], now)
            schedule.save(update_fields=["settled_count"])
    end_versions(rows, now)
    Schedule.objects.filter(id__in=[s.id for s in rows]).update(next_instant=None, next_fire_at=None)


def delete_schedules(rows: Sequence[Schedule], now: datetime) -> None:
    """Mark ended schedules as deleted; the rows stay for the history, without their calendar."""
    Schedule.objects.filter(id__in=[s.id for s in rows]).update(deleted_at=now, calendar=None, own_excluded_dates=None)


def lock_and_fire_due(job: Job) -> datetime:
    """Lock the schedules and fire all instants up to the returned time."""
    lock_schedules(job)
    now = database_now()
    firing.fire_job(job.id, until=now)
    return now


def fire_until(now: datetime, job_ids: Collection[UUID], *, ending: Collection[UUID]) -> None:
    """Fire due instants of locked schedules; jitter still delays those not in `ending`."""
    due = Schedule.objects.filter(job_id__in=job_ids, next_instant__lte=now).values_list("job_id", "id")
    ending_of = defaultdict[UUID, list[UUID]](list)
    for job_id, schedule_id in due:
        ending_of[job_id] += [schedule_id] if schedule_id in ending else []
    for job_id in sorted(ending_of):
        firing.fire_job(job_id, until=now, ending=ending_of[job_id])


def lock_schedules(job: Job) -> list[Schedule]:
    return list(job.schedules.select_for_update(no_key=True).order_by("id"))


def arm(schedule: Schedule, instant: datetime | None) -> None:
    schedule.next_instant = instant
    schedule.next_fire_at = instant and add_jitter(schedule.id, instant, schedule.jitter_seconds)


def version_boundary(schedule: Schedule, now: datetime) -> datetime:
    """Return the time after which a new version has instants; a fixed delay fires now."""
    return now - RESOLUTION if schedule.kind == Kind.DELAY else now


def find_first_instant(schedule: Schedule, now: datetime) -> datetime | None:
    """Return the first instant of a version that begins now."""
    recurrence = recurrence_of(schedule)
    if recurrence.kind is not Kind.DELAY:
        return recurrence.next_after(now)
    start = max(now, recurrence.starts_at)
    return replace(recurrence, starts_at=start).next_after(start - RESOLUTION)


def has_unfinished_run(schedule: Schedule) -> bool:
    """Return whether a run will arm it; wait for one that is finishing with the former version."""
    runs = Execution.objects.filter(job_id=schedule.job_id, ended_at__isnull=True, schedule=schedule)
    return bool(list(runs.select_for_update(no_key=True).order_by("id").values_list("id")))


def read_paused_since(rows: Sequence[Schedule]) -> dict[UUID, datetime]:
    """Return since when schedules are paused, without those already exhausted then."""
    versions = ScheduleVersion.objects.filter(schedule__in=rows, to_at__isnull=True, paused=True)
    return dict(versions.values_list("schedule_id", "from_at"))


def drop_paused_instants(schedule: Schedule, after: datetime, until: datetime) -> int:
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
    """Append a version with the stored values of each row."""
    if rows:
        schedule_ids = [schedule.id for schedule in rows]
        parameters = {"ids": [new_id() for _ in rows], "schedules": schedule_ids, "now": now, "paused": paused}
        sql.execute("insert_schedule_versions", parameters)


def end_versions(rows: Sequence[Schedule], at: datetime) -> None:
    ScheduleVersion.objects.filter(schedule__in=rows, to_at__isnull=True).update(to_at=at)
