"""Schedules in the past for tests of audits: created, fired, paused and audited."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.domain.recurrence import add_jitter
from jobs.models import Execution, Job, Schedule, ScheduleVersion
from jobs.models.ids import new_id
from jobs.scheduling.firing import fire_due_schedules
from jobs.scheduling.schedules import recurrence_of
from jobs.verify.firings import audit_firings
from jobs.verify.report import FiringAudit
from tests.support.factories import make_job

MINUTE = timedelta(minutes=1)


def minutes_ago(minutes: float) -> datetime:
    return datetime.now(UTC) - minutes * MINUTE


def past_schedule(minutes: float, *, job: Job | None = None, **fields: Any) -> Schedule:
    """Create a schedule of every minute as if long ago, with nothing fired since and catch-up of all instants."""
    begin = minutes_ago(minutes)
    values: dict[str, Any] = {"kind": "every", "expression": "60", "starts_at": begin, "catch_up": "all"} | fields
    schedule = Schedule(job=job or make_job(), id=new_id(), **values)
    first = begin if schedule.kind == "delay" else recurrence_of(schedule).next_after(begin)
    assert first is not None
    schedule.next_instant = first
    schedule.next_fire_at = add_jitter(schedule.id, first, schedule.jitter_seconds)
    schedule.save()
    copied = ("kind", "expression", "timezone", "starts_at", "ends_at", "jitter_seconds", "excluded_dates", "max_count")
    ScheduleVersion.objects.create(
        schedule=schedule,
        number=1,
        from_at=begin - timedelta(microseconds=1) if schedule.kind == "delay" else begin,
        **{name: getattr(schedule, name) for name in copied},
    )
    return schedule


def fire_all() -> None:
    while fire_due_schedules().schedules:
        pass


def audit(**options: Any) -> FiringAudit:
    return audit_firings(options.pop("from_", minutes_ago(10_000)), options.pop("to", datetime.now(UTC)), **options)


def differences(found: FiringAudit) -> list[tuple[str, datetime | None]]:
    return [(each.what.value, each.instant) for each in found.differences]


def instant_of(schedule: Schedule, number: int) -> datetime:
    return schedule.starts_at + number * MINUTE


def paused_since(schedule: Schedule, minutes: float) -> None:
    """Move the pause that has just begun into the past."""
    begin = minutes_ago(minutes)
    ScheduleVersion.objects.filter(schedule=schedule, number=1).update(to_at=begin)
    Execution.objects.filter(schedule=schedule, scheduled_for__gt=begin).delete()
    settled = Execution.objects.filter(schedule=schedule).count()
    ScheduleVersion.objects.filter(schedule=schedule, number=2).update(from_at=begin, settled_before=settled)
    Schedule.objects.filter(id=schedule.id).update(settled_count=settled)
