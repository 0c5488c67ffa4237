"""Pausing, resuming and cancelling move the line between versions of a schedule without losing an instant."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import F

from jobs.errors import Conflict
from jobs.models import DroppedRange, Execution, Job, JobState, Schedule, ScheduleVersion
from jobs.recurrence import CatchUp, Kind
from jobs.services import commands, schedules
from jobs.services.firing import fire_due_schedules
from jobs.services.job_spec import ScheduleSpec
from tests.factories import make_execution, make_job

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
MICROSECOND = timedelta(microseconds=1)


def scheduled(
    kind: Kind, expression: str, *, ago: timedelta = timedelta(), catch_up: str = "latest", **spec: Any
) -> Schedule:
    """A schedule that was created that long ago and that no beat has looked at since."""
    created = datetime.now(UTC) - ago
    wanted = ScheduleSpec(kind, expression, catch_up=CatchUp(catch_up), **spec)
    planned = schedules.plan_schedule(0, wanted, created)
    schedules.create_schedules(make_job(max_concurrency=None), [planned], created)
    return planned


def pause_since(schedule: Schedule, ago: timedelta) -> datetime:
    """Pauses the job, as if that long ago; returns since when it counts as paused."""
    commands.pause_job(schedule.job_id, note="")
    ScheduleVersion.objects.filter(schedule=schedule).update(from_at=F("from_at") - ago, to_at=F("to_at") - ago)
    if schedule.kind != Kind.EVERY:  # whose start is its anchor
        Schedule.objects.filter(id=schedule.id).update(starts_at=F("starts_at") - 2 * ago)
    paused = ScheduleVersion.objects.get(schedule=schedule, to_at__isnull=True)
    assert paused.paused
    return paused.from_at


def history(schedule: Schedule) -> list[ScheduleVersion]:
    return list(schedule.history.order_by("number"))


def dropped(schedule: Schedule) -> list[tuple[str, int]]:
    return list(DroppedRange.objects.filter(schedule=schedule).order_by("first").values_list("reason", "count"))


def instants(schedule: Schedule) -> list[datetime]:
    rows = Execution.objects.filter(schedule=schedule).order_by("scheduled_for")
    return list(rows.values_list("scheduled_for", flat=True))


def whole_minutes(after: datetime, until: datetime) -> list[datetime]:
    """A walk over real minutes: none of the product's code."""
    minute = after.replace(second=0, microsecond=0) + MINUTE
    found = []
    while minute <= until:
        found.append(minute)
        minute += MINUTE
    return found


def test_a_new_schedule_is_in_force_from_its_creation() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    (version,) = history(schedule)
    assert (version.number, version.from_at, version.to_at, version.paused) == (1, schedule.starts_at, None, False)
    assert (version.kind, version.expression) == ("every", "60")


@pytest.mark.parametrize("jitter", [0, 3600])
def test_a_pause_first_settles_what_is_due(jitter: float) -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=5.5 * MINUTE, catch_up="all", jitter_seconds=jitter)
    start = schedule.starts_at
    commands.pause_job(schedule.job_id, note="")
    assert instants(schedule) == [start + n * MINUTE for n in range(1, 6)], "none of them is lost to the pause"
    assert set(Execution.objects.values_list("state", flat=True)) == {"ready"}
    assert dropped(schedule) == []
    schedule.refresh_from_db()
    assert (schedule.next_instant, schedule.next_fire_at, schedule.settled_count) == (None, None, 5)


def test_a_paused_job_does_not_fire_and_says_why() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    commands.pause_job(schedule.job_id, note="migration")
    job = Job.objects.get()
    assert (job.state, job.paused_note) == ("paused", "migration")
    assert fire_due_schedules().schedules == 0
    before, paused = history(schedule)
    assert before.to_at == paused.from_at == job.paused_at
    assert (before.paused, paused.paused, paused.to_at) == (False, True, None)


def test_pausing_again_changes_the_note_alone() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    commands.pause_job(schedule.job_id, note="one")
    before = (Job.objects.get().paused_at, history(schedule))
    commands.pause_job(schedule.job_id, note="two")
    assert (Job.objects.get().paused_at, history(schedule)) == before
    assert Job.objects.get().paused_note == "two"


def test_what_was_fired_before_a_pause_runs_on_and_can_be_started_by_hand() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    running = make_execution(job=schedule.job)
    commands.pause_job(schedule.job_id, note="")
    commands.execute_job(schedule.job_id)
    running.refresh_from_db()
    assert (running.state, running.cancel_requested_at) == ("ready", None)
    assert Execution.objects.count() == 2


def test_resuming_an_active_job_changes_nothing() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    before = Schedule.objects.values().get()
    commands.resume_job(schedule.job_id)
    assert Schedule.objects.values().get() == before
    assert len(history(schedule)) == 1


@pytest.mark.parametrize(("kind", "expression", "step"), [(Kind.CRON, "* * * * *", 1), (Kind.CRON, "*/5 * * * *", 5)])
def test_resume_counts_the_instants_of_the_pause(kind: Kind, expression: str, step: int) -> None:
    schedule = scheduled(kind, expression)
    since = pause_since(schedule, 3 * HOUR)
    commands.resume_job(schedule.job_id)
    *_, paused, now = history(schedule)
    wanted = [m for m in whole_minutes(since, now.from_at) if m.minute % step == 0]
    assert dropped(schedule) == [("paused", len(wanted))]
    assert DroppedRange.objects.get().first == wanted[0]
    schedule.refresh_from_db()
    assert schedule.next_instant == wanted[-1] + step * MINUTE
    assert schedule.settled_count == len(wanted)
    assert instants(schedule) == []
    assert (paused.to_at, now.to_at, now.paused) == (now.from_at, None, False)


def test_resume_counts_an_interval_from_its_anchor() -> None:
    anchor = datetime.now(UTC) - 10 * HOUR
    schedule = scheduled(Kind.EVERY, "7", starts_at=anchor)
    since = pause_since(schedule, 2 * HOUR)
    commands.resume_job(schedule.job_id)
    until = history(schedule)[-1].from_at
    seconds = [(moment - anchor).total_seconds() for moment in (since, until)]
    wanted = [n for n in range(0, 36_100, 7) if seconds[0] < n <= seconds[1]]
    assert dropped(schedule) == [("paused", len(wanted))]
    schedule.refresh_from_db()
    assert schedule.next_instant == anchor + timedelta(seconds=wanted[-1] + 7)


def test_excluded_dates_are_not_dropped_because_they_have_no_instants() -> None:
    today = datetime.now(UTC).date()
    out = [today - timedelta(days=n) for n in (1, 2)]
    schedule = scheduled(Kind.CRON, "30 12 * * *", excluded_dates=out)
    since = pause_since(schedule, timedelta(days=5))
    commands.resume_job(schedule.job_id)
    until = history(schedule)[-1].from_at
    wanted = [
        day for n in range(6) if (day := today - timedelta(days=n)) not in out
        and since < datetime(day.year, day.month, day.day, 12, 30, tzinfo=UTC) <= until
    ]  # fmt: skip
    assert dropped(schedule) == [("paused", len(wanted))]
    assert len(wanted) == 3


def test_the_instants_of_a_pause_count_towards_a_maximum_count() -> None:
    schedule = scheduled(Kind.CRON, "* * * * *", max_count=10)
    since = pause_since(schedule, 4 * MINUTE)
    commands.resume_job(schedule.job_id)
    wanted = len(whole_minutes(since, history(schedule)[-1].from_at))
    schedule.refresh_from_db()
    assert dropped(schedule) == [("paused", wanted)]
    assert schedule.settled_count == wanted
    assert schedule.next_instant is not None


def test_a_maximum_count_that_the_pause_used_up_ends_the_schedule() -> None:
    schedule = scheduled(Kind.CRON, "* * * * *", max_count=7)
    pause_since(schedule, HOUR)
    commands.resume_job(schedule.job_id)
    schedule.refresh_from_db()
    assert dropped(schedule) == [("paused", 7)]
    assert (schedule.next_instant, schedule.settled_count) == (None, 7)
    assert history(schedule)[-1].paused, "nothing is in force any more"


def test_the_history_has_neither_gaps_nor_overlaps() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    for _ in range(3):
        commands.pause_job(schedule.job_id, note="")
        commands.resume_job(schedule.job_id)
    versions = history(schedule)
    assert [v.number for v in versions] == list(range(1, 8))
    assert [v.paused for v in versions] == [False, True] * 3 + [False]
    assert [v.to_at for v in versions] == [v.from_at for v in versions[1:]] + [None]
    assert versions[0].from_at == schedule.starts_at


def test_cancelling_settles_and_ends_the_history() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=2.5 * MINUTE, catch_up="all")
    commands.cancel_job(schedule.job_id, by="test")
    assert list(Execution.objects.values_list("state", flat=True)) == ["cancelled"] * 2
    (version,) = history(schedule)
    assert version.to_at is not None
    commands.cancel_job(schedule.job_id, by="test")
    assert history(schedule) == [version]


def test_cancelling_a_paused_job_accounts_for_its_pause() -> None:
    schedule = scheduled(Kind.CRON, "* * * * *")
    since = pause_since(schedule, HOUR)
    commands.cancel_job(schedule.job_id, by="test")
    *_, paused = history(schedule)
    assert paused.to_at is not None
    assert dropped(schedule) == [("paused", len(whole_minutes(since, paused.to_at)))]


def test_a_cancelled_job_is_neither_paused_nor_resumed() -> None:
    job = scheduled(Kind.EVERY, "60").job
    commands.cancel_job(job.id, by="test")
    with pytest.raises(Conflict):
        commands.pause_job(job.id, note="")
    with pytest.raises(Conflict):
        commands.resume_job(job.id)
    assert Job.objects.get().state == JobState.CANCELLED


def test_a_schedule_without_instants_left_stays_over() -> None:
    schedule = scheduled(Kind.AT, (datetime.now(UTC) - MINUTE).isoformat(), ago=2 * MINUTE, catch_up="all")
    commands.pause_job(schedule.job_id, note="")
    assert len(instants(schedule)) == 1
    commands.resume_job(schedule.job_id)
    schedule.refresh_from_db()
    assert (schedule.next_instant, dropped(schedule)) == (None, [])


def test_a_job_without_schedules_is_paused_and_resumed() -> None:
    job = make_job()
    commands.pause_job(job.id, note="")
    assert Job.objects.get().state == "paused"
    commands.resume_job(job.id)
    assert Job.objects.get().state == "active"


def test_catch_up_beyond_a_few_rows_is_one_range() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=100.5 * MINUTE, catch_up="latest")
    result = fire_due_schedules()
    assert (result.fired, result.missed) == (1, 99)
    (row,) = DroppedRange.objects.all()
    start = schedule.starts_at
    assert (row.first, row.last, row.count) == (start + MINUTE, start + 99 * MINUTE, 99)
    assert instants(schedule) == [start + 100 * MINUTE]
    schedule.refresh_from_db()
    assert schedule.settled_count == 100


def test_a_maximum_count_is_kept_over_catch_up() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=9.5 * MINUTE, catch_up="all", max_count=4)
    assert fire_due_schedules().fired == 4
    schedule.refresh_from_db()
    assert (schedule.next_instant, len(instants(schedule))) == (None, 4)


def test_excluded_dates_do_not_fire() -> None:
    today = datetime.now(UTC).date()
    schedule = scheduled(
        Kind.CRON, "0 0 * * *", ago=timedelta(days=3), catch_up="all", excluded_dates=[today - timedelta(days=1)]
    )
    fire_due_schedules()
    assert [i.date() for i in instants(schedule)] == [today - timedelta(days=2), today]


def test_the_sun_fires() -> None:
    schedule = scheduled(Kind.SOLAR, "sunset 48.85,2.35", ago=timedelta(days=3), catch_up="all")
    fire_due_schedules()
    fired = instants(schedule)
    assert 2 <= len(fired) <= 4, "the sun moves by minutes from day to day"
    assert all(23 * HOUR < b - a < 25 * HOUR for a, b in pairwise(fired))
    schedule.refresh_from_db()
    assert schedule.next_instant is not None
    assert schedule.next_instant > datetime.now(UTC)


def test_a_hashed_field_fires_once_an_hour_at_a_minute_of_its_own() -> None:
    planned = [scheduled(Kind.CRON, "H * * * *", ago=4 * HOUR, catch_up="all") for _ in range(8)]
    fire_due_schedules()
    minutes: dict[UUID, set[int]] = {s.id: {i.minute for i in instants(s)} for s in planned}
    assert all(len(found) == 1 for found in minutes.values())
    assert all(len(instants(s)) == 4 for s in planned)
    assert len(set.union(*minutes.values())) > 1, "they are spread"


def test_dates_are_stored_as_dates() -> None:
    schedule = scheduled(Kind.CRON, "@daily", excluded_dates=[date(2030, 1, 2), date(2030, 1, 1)])
    with connection.cursor() as cursor:
        cursor.execute("SELECT excluded_dates FROM jobs_scheduleversion WHERE schedule_id = %s", [schedule.id])
        assert cursor.fetchone()[0] == [date(2030, 1, 1), date(2030, 1, 2)]
