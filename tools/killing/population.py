"""The schedules that the killed beats fire: every kind that comes soon, every policy, several to a job.

All but one, which is excluded for today, end at the same moment, so that afterwards every instant must be settled.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User

from jobs.db.clock import database_now
from jobs.domain.choices import Overlap
from jobs.domain.job_spec import JobSpec, Requirements, ScheduleSpec
from jobs.domain.recurrence import CatchUp, Kind
from jobs.models import Schedule
from jobs.scheduling import schedules
from tests.support.factories import make_job
from tests.support.submitting import submit_job

ZONES = ("UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Chatham")
FAR_EAST = "Pacific/Kiritimati"
TINY = Requirements(cpu=0.01, memory_mb=1, disk_mb=0)


def populate(owner: User, end: datetime, choose: random.Random) -> None:
    for number, (overlap, limit, wanted) in enumerate(_jobs(datetime.now(UTC), end, choose)):
        submit_job(
            owner=owner,
            spec=JobSpec(
                name=f"job {number}",
                runtime="bash",
                script="true",
                schedules=wanted,
                requirements=TINY,
                overlap=overlap,
                max_concurrency=limit,
            ),
        )
    for policy in CatchUp:
        _add_frequent(owner, end, policy)


def _jobs(
    now: datetime, end: datetime, choose: random.Random
) -> Iterator[tuple[Overlap, int | None, list[ScheduleSpec]]]:
    for overlap, policy in product(Overlap, CatchUp):
        window = choose.choice([None, 12.0])
        # Two schedules of one job, so that two beats have it in their hands at once.
        pair = [
            ScheduleSpec(Kind.EVERY, every, ends_at=end, catch_up=policy, catch_up_window_seconds=window)
            for every in ("1", "2")
        ]
        yield overlap, choose.choice([1, 2]), pair
    for zone in ZONES:
        cron = ScheduleSpec(Kind.CRON, "* * * * *", zone, ends_at=end, jitter_seconds=choose.uniform(0, 5))
        yield Overlap.QUEUE, 1, [cron]
    for every, jitter in (("1", 0.9), ("2", 3.0), ("3", 1.5)):
        yield Overlap.QUEUE, None, [ScheduleSpec(Kind.EVERY, every, ends_at=end, jitter_seconds=jitter)]
    for policy in CatchUp:
        counted = ScheduleSpec(Kind.EVERY, "1", ends_at=end, catch_up=policy, max_count=choose.randint(10, 40))
        yield Overlap.QUEUE, None, [counted]
    for delay, count in (("1", None), ("1.5", 20), ("2", None)):
        yield Overlap.QUEUE, 1, [ScheduleSpec(Kind.DELAY, delay, ends_at=end, max_count=count)]
    yield from _bounded(now, end, choose)


def _bounded(
    now: datetime, end: datetime, choose: random.Random
) -> Iterator[tuple[Overlap, int | None, list[ScheduleSpec]]]:
    length = end - now
    today, day = now.astimezone(ZoneInfo(FAR_EAST)).date(), timedelta(days=1)
    around = ScheduleSpec(Kind.EVERY, "1", FAR_EAST, ends_at=end, excluded_dates=[today - day, today + day])
    not_today = ScheduleSpec(Kind.EVERY, "1", FAR_EAST, excluded_dates=[today])
    yield Overlap.QUEUE, None, [around, not_today]
    late = ScheduleSpec(Kind.EVERY, "1.5", starts_at=now + length * 0.3, ends_at=now + length * 0.8)
    yield Overlap.QUEUE, None, [late]
    for policy in CatchUp:
        moments = [now + length * choose.uniform(0.4, 0.9) for _ in range(3)]
        singles = [ScheduleSpec(Kind.AT, moment.isoformat(), catch_up=policy) for moment in moments]
        yield Overlap.QUEUE, None, singles


def _add_frequent(owner: User, end: datetime, policy: CatchUp) -> None:
    """Closer together than the API allows: a few seconds without a beat drop enough for a range."""
    job = make_job(owner=owner, name=f"frequent {policy}", max_concurrency=None, cpu=0.01, memory_mb=1, disk_mb=0)
    now = database_now()
    first = now + timedelta(seconds=0.25)
    frequent = Schedule(
        kind=Kind.EVERY,
        expression="0.25",
        starts_at=now,
        ends_at=end,
        catch_up=policy,
        next_instant=first,
        next_fire_at=first,
    )
    schedules.create_schedules(job, [frequent], now)


def add_single(at: datetime, now: datetime) -> Schedule:
    """Stored, and told to nobody."""
    single = Schedule(kind=Kind.AT, expression=at.isoformat(), starts_at=now, next_instant=at, next_fire_at=at)
    schedules.create_schedules(make_job(name="single"), [single], now)
    return single
