"""Fixed delays, armed again by the end of their run, in the transaction that ended it.

Whoever ends a run of such a schedule calls this, or the schedule never fires again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from django.db import transaction

from jobs import due_window, sql, wakeups
from jobs.models import JobState, Schedule
from jobs.protocol import Moved
from jobs.recurrence import Recurrence, jittered, rearmed


@dataclass(frozen=True, slots=True)
class _Delay:
    schedule_id: UUID
    kind: str
    expression: str
    timezone: str
    starts_at: datetime
    ends_at: datetime | None
    excluded_dates: list[date]
    jitter_seconds: float
    max_count: int | None
    settled_count: int
    ended_at: datetime


def rearm_delays(ended: Sequence[Moved]) -> None:
    if not ended:
        return
    rearmed_dues: list[tuple[UUID, datetime | None]] = []
    for delay in sql.fetch("rearm_delays", {"ids": [m.execution_id for m in ended]}, _Delay):
        if delay.max_count is not None and delay.settled_count >= delay.max_count:
            continue
        due = rearmed(Recurrence.of(delay, key=delay.schedule_id), delay.ended_at)
        fire_at = due and jittered(delay.schedule_id, due, delay.jitter_seconds)
        # Asked again under the schedule's lock: whoever paused the job meanwhile held it.
        Schedule.objects.filter(id=delay.schedule_id, job__state=JobState.ACTIVE).update(
            next_instant=due, next_fire_at=fire_at
        )
        rearmed_dues.append((delay.schedule_id, fire_at))
    if rearmed_dues:
        transaction.on_commit(lambda: due_window.announce(rearmed_dues))
        # It may be due before beat would look again.
        transaction.on_commit(wakeups.wake_beat)
