"""Schedules created as the product creates them, possibly in the past."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from jobs.domain.job_spec import ScheduleSpec
from jobs.domain.recurrence import Kind
from jobs.models import Job, Schedule
from jobs.scheduling.schedules import create_schedules, prepare_schedule


def add_schedule(job: Job, kind: Kind, expression: str, *, created: datetime | None = None, **spec: Any) -> Schedule:
    created = created or datetime.now(UTC)
    schedule = prepare_schedule(0, ScheduleSpec(kind, expression, **spec), created)
    create_schedules(job, [schedule], created)
    return schedule
