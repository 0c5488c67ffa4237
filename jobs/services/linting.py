"""What a person should know about the schedules that they just saved; nothing is refused here."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from jobs.models import Schedule
from jobs.recurrence import lint
from jobs.services.schedules import database_now, recurrence_of

# So many schedules in one second are a herd; and no more than this are counted, in an answer to a request.
HERD = 100
MOST_COUNTED = 10_000
_SECOND = timedelta(seconds=1)


def lint_schedules(job_id: UUID) -> list[str]:
    """Warnings, each one sentence and each once, in the order of the schedules."""
    now = database_now()
    found: list[str] = []
    for schedule in Schedule.objects.filter(job_id=job_id).order_by("id"):
        found += lint(recurrence_of(schedule), now)
        if schedule.next_fire_at is not None:
            found += _herd(schedule.next_fire_at)
    return list(dict.fromkeys(found))


def _herd(fires_at: datetime) -> list[str]:
    second = fires_at.replace(microsecond=0)
    sharing = Schedule.objects.filter(next_fire_at__gte=second, next_fire_at__lt=second + _SECOND)
    count = len(sharing.order_by("next_fire_at").values_list("id")[: MOST_COUNTED + 1])
    if count <= HERD:
        return []
    many = f"more than {MOST_COUNTED:,}" if count > MOST_COUNTED else f"{count:,}"
    return [
        f"With it {many} schedules fire in the same second, {second:%Y-%m-%dT%H:%M:%SZ};"
        " jitter_seconds or an H in its cron fields would spread them."
    ]
