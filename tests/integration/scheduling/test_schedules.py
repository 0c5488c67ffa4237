"""Pausing, resuming and cancelling begin and end versions of a schedule without losing an instant."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import F

from jobs.definitions import lifecycle
from jobs.definitions.editing import edit_job
from jobs.domain import limits
from jobs.domain.errors import Conflict
from jobs.domain.job_edit import JobEdit, ScheduleEdit
from jobs.domain.recurrence import CatchUp, Kind
from jobs.models import DroppedRange, Execution, Job, JobState, Schedule, ScheduleVersion
from jobs.scheduling.firing import fire_due_schedules
from jobs.verify.firings import audit_firings
from tests.support.factories import make_execution, make_job
from tests.support.schedules import add_schedule

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
MICROSECOND = timedelta(microseconds=1)


def scheduled(
    kind: Kind, expression: str, *, ago: timedelta = timedelta(), catch_up: str = "latest", **spec: Any
) -> Schedule:
    """Create a schedule that long ago that has never fired."""
    created = datetime.now(UTC) - ago
    job = make_job(max_concurrency=None)
    return add_schedule(job, kind, expression, created=created, catch_up=CatchUp(catch_up), **spec)


def pause_since(schedule: Schedule, ago: timedelta) -> datetime:
    """Pause the job as if that long ago; return the start of the pause."""
    lifecycle.pause_job(schedule.job_id, note="")
    ScheduleVersion.objects.filter(schedule=schedule).update(from_at=F("from_at") - ago, to_at=F("to_at") - ago)
    if schedule.kind != Kind.EVERY:  # the start of an interval is its anchor
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
    """Return the full minutes in the range, computed without product code."""
    minute = after.replace(second=0, microsecond=0) + MINUTE
    minutes = []
    while minute <= until:
        minutes.append(minute)
        minute += MINUTE
    return minutes


def test_new_schedule_is_in_force_from_its_creation() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    (version,) = history(schedule)
    assert (version.number, version.from_at, version.to_at, version.paused) == (1, schedule.starts_at, None, False)
    assert (version.kind, version.expression) == ("every", "60")


@pytest.mark.parametrize("jitter", [0, 3600])
def test_pause_fires_due_instants_first(jitter: float) -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=5.5 * MINUTE, catch_up="all", jitter_seconds=jitter)
    start = schedule.starts_at
    lifecycle.pause_job(schedule.job_id, note="")
    assert instants(schedule) == [start + n * MINUTE for n in range(1, 6)], "the pause loses no instant"
    assert set(Execution.objects.values_list("state", flat=True)) == {"ready"}
    assert dropped(schedule) == []
    schedule.refresh_from_db()
    assert (schedule.next_instant, schedule.next_fire_at, schedule.settled_count) == (None, None, 5)


def test_paused_job_does_not_fire_and_shows_its_note() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    lifecycle.pause_job(schedule.job_id, note="migration")
    job = Job.objects.get()
    assert (job.state, job.paused_note) == ("paused", "migration")
    assert fire_due_schedules().schedules == 0
    before, paused = history(schedule)
    assert before.to_at == paused.from_at == job.paused_at
    assert (before.paused, paused.paused, paused.to_at) == (False, True, None)


def test_pausing_again_changes_only_the_note() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    lifecycle.pause_job(schedule.job_id, note="one")
    before = (Job.objects.get().paused_at, history(schedule))
    lifecycle.pause_job(schedule.job_id, note="two")
    assert (Job.objects.get().paused_at, history(schedule)) == before
    assert Job.objects.get().paused_note == "two"


def test_pause_keeps_existing_executions_and_allows_manual_ones() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    running = make_execution(job=schedule.job)
    lifecycle.pause_job(schedule.job_id, note="")
    lifecycle.execute_job(schedule.job_id)
    running.refresh_from_db()
    assert (running.state, running.cancel_requested_at) == ("ready", None)
    assert Execution.objects.count() == 2


def test_resuming_an_active_job_changes_nothing() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    before = Schedule.objects.values().get()
    lifecycle.resume_job(schedule.job_id)
    assert Schedule.objects.values().get() == before
    assert len(history(schedule)) == 1


@pytest.mark.parametrize(("kind", "expression", "step"), [(Kind.CRON, "* * * * *", 1), (Kind.CRON, "*/5 * * * *", 5)])
def test_resume_counts_the_instants_of_the_pause_as_dropped(kind: Kind, expression: str, step: int) -> None:
    schedule = scheduled(kind, expression)
    since = pause_since(schedule, 3 * HOUR)
    lifecycle.resume_job(schedule.job_id)
    *_, paused, now = history(schedule)
    expected = [m for m in whole_minutes(since, now.from_at) if m.minute % step == 0]
    assert dropped(schedule) == [("paused", len(expected))]
    assert DroppedRange.objects.get().first == expected[0]
    schedule.refresh_from_db()
    assert schedule.next_instant == expected[-1] + step * MINUTE
    assert schedule.settled_count == len(expected)
    assert instants(schedule) == []
    assert (paused.to_at, now.to_at, now.paused) == (now.from_at, None, False)


def test_resume_counts_an_interval_from_its_anchor() -> None:
    anchor = datetime.now(UTC) - 10 * HOUR
    schedule = scheduled(Kind.EVERY, "7", starts_at=anchor)
    since = pause_since(schedule, 2 * HOUR)
    lifecycle.resume_job(schedule.job_id)
    until = history(schedule)[-1].from_at
    seconds = [(moment - anchor).total_seconds() for moment in (since, until)]
    expected = [n for n in range(0, 36_100, 7) if seconds[0] < n <= seconds[1]]
    assert dropped(schedule) == [("paused", len(expected))]
    schedule.refresh_from_db()
    assert schedule.next_instant == anchor + timedelta(seconds=expected[-1] + 7)


def test_resume_does_not_count_excluded_dates() -> None:
    today = datetime.now(UTC).date()
    excluded = [today - timedelta(days=n) for n in (1, 2)]
    schedule = scheduled(Kind.CRON, "30 12 * * *", excluded_dates=excluded)
    since = pause_since(schedule, timedelta(days=5))
    lifecycle.resume_job(schedule.job_id)
    until = history(schedule)[-1].from_at
    expected = [
        day for n in range(6) if (day := today - timedelta(days=n)) not in excluded
        and since < datetime(day.year, day.month, day.day, 12, 30, tzinfo=UTC) <= until
    ]  # fmt: skip
    assert dropped(schedule) == [("paused", len(expected))]
    assert len(expected) == 3


def test_instants_of_a_pause_count_towards_max_count() -> None:
    schedule = scheduled(Kind.CRON, "* * * * *", max_count=10)
    since = pause_since(schedule, 4 * MINUTE)
    lifecycle.resume_job(schedule.job_id)
    expected = len(whole_minutes(since, history(schedule)[-1].from_at))
    schedule.refresh_from_db()
    assert dropped(schedule) == [("paused", expected)]
    assert schedule.settled_count == expected
    assert schedule.next_instant is not None


def test_schedule_ends_if_the_pause_uses_up_max_count() -> None:
    schedule = scheduled(Kind.CRON, "* * * * *", max_count=7)
    pause_since(schedule, HOUR)
    lifecycle.resume_job(schedule.job_id)
    schedule.refresh_from_db()
    assert dropped(schedule) == [("paused", 7)]
    assert (schedule.next_instant, schedule.settled_count) == (None, 7)
    assert history(schedule)[-1].paused, "no new version begins"


def test_the_history_has_neither_gaps_nor_overlaps() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    for _ in range(3):
        lifecycle.pause_job(schedule.job_id, note="")
        lifecycle.resume_job(schedule.job_id)
    versions = history(schedule)
    assert [v.number for v in versions] == list(range(1, 8))
    assert [v.paused for v in versions] == [False, True] * 3 + [False]
    assert [v.to_at for v in versions] == [v.from_at for v in versions[1:]] + [None]
    assert versions[0].from_at == schedule.starts_at


def test_cancelling_fires_due_instants_and_ends_the_history() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=2.5 * MINUTE, catch_up="all")
    lifecycle.cancel_job(schedule.job_id, by="test")
    assert list(Execution.objects.values_list("state", flat=True)) == ["cancelled"] * 2
    (version,) = history(schedule)
    assert version.to_at is not None
    lifecycle.cancel_job(schedule.job_id, by="test")
    assert history(schedule) == [version]


def test_cancelling_a_paused_job_counts_its_dropped_instants() -> None:
    schedule = scheduled(Kind.CRON, "* * * * *")
    since = pause_since(schedule, HOUR)
    lifecycle.cancel_job(schedule.job_id, by="test")
    *_, paused = history(schedule)
    assert paused.to_at is not None
    assert dropped(schedule) == [("paused", len(whole_minutes(since, paused.to_at)))]


def test_cancelled_job_can_be_neither_paused_nor_resumed() -> None:
    job = scheduled(Kind.EVERY, "60").job
    lifecycle.cancel_job(job.id, by="test")
    with pytest.raises(Conflict):
        lifecycle.pause_job(job.id, note="")
    with pytest.raises(Conflict):
        lifecycle.resume_job(job.id)
    assert Job.objects.get().state == JobState.CANCELLED


def test_resume_does_not_revive_an_exhausted_schedule() -> None:
    schedule = scheduled(Kind.AT, (datetime.now(UTC) - MINUTE).isoformat(), ago=2 * MINUTE, catch_up="all")
    lifecycle.pause_job(schedule.job_id, note="")
    assert len(instants(schedule)) == 1
    lifecycle.resume_job(schedule.job_id)
    schedule.refresh_from_db()
    assert (schedule.next_instant, dropped(schedule)) == (None, [])


def test_job_without_schedules_can_be_paused_and_resumed() -> None:
    job = make_job()
    lifecycle.pause_job(job.id, note="")
    assert Job.objects.get().state == "paused"
    lifecycle.resume_job(job.id)
    assert Job.objects.get().state == "active"


def test_many_missed_instants_become_one_dropped_range() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=100.5 * MINUTE, catch_up="latest")
    result = fire_due_schedules()
    assert (result.fired, result.missed) == (1, 99)
    (row,) = DroppedRange.objects.all()
    start = schedule.starts_at
    assert (row.first, row.last, row.count) == (start + MINUTE, start + 99 * MINUTE, 99)
    assert instants(schedule) == [start + 100 * MINUTE]
    schedule.refresh_from_db()
    assert schedule.settled_count == 100


def test_catch_up_respects_max_count() -> None:
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


def test_solar_schedule_fires() -> None:
    schedule = scheduled(Kind.SOLAR, "sunset 48.85,2.35", ago=timedelta(days=3), catch_up="all")
    fire_due_schedules()
    fired = instants(schedule)
    assert 2 <= len(fired) <= 4, "sunset shifts by minutes per day"
    assert all(23 * HOUR < b - a < 25 * HOUR for a, b in pairwise(fired))
    schedule.refresh_from_db()
    assert schedule.next_instant is not None
    assert schedule.next_instant > datetime.now(UTC)


def test_hashed_cron_field_fires_hourly_at_a_fixed_minute() -> None:
    planned = [scheduled(Kind.CRON, "H * * * *", ago=4 * HOUR, catch_up="all") for _ in range(8)]
    fire_due_schedules()
    minutes: dict[UUID, set[int]] = {s.id: {i.minute for i in instants(s)} for s in planned}
    assert all(len(each) == 1 for each in minutes.values())
    assert all(len(instants(s)) == 4 for s in planned)
    assert len(set.union(*minutes.values())) > 1, "they are spread"


def test_excluded_dates_are_stored_as_dates() -> None:
    schedule = scheduled(Kind.CRON, "@daily", excluded_dates=[date(2030, 1, 2), date(2030, 1, 1)])
    with connection.cursor() as cursor:
        cursor.execute("SELECT excluded_dates FROM jobs_scheduleversion WHERE schedule_id = %s", [schedule.id])
        assert cursor.fetchone()[0] == [date(2030, 1, 1), date(2030, 1, 2)]


@pytest.mark.parametrize("command", ["pause", "cancel", "edit"])
def test_command_fires_a_bounded_number_of_instants_and_counts_the_rest(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """For a schedule of one instant per second that catches up with all and has not fired for a day."""
    monkeypatch.setattr(limits, "FIRE_BACKLOG_SECONDS", 0)
    monkeypatch.setattr(limits, "FIRE_BATCH_INSTANTS", 50)
    schedule = scheduled(Kind.EVERY, "1", ago=timedelta(days=1), catch_up="all")
    start, job = schedule.starts_at, schedule.job
    if command == "pause":
        lifecycle.pause_job(job.id, note="")
    elif command == "cancel":
        lifecycle.cancel_job(job.id, by="test")
    else:
        edit_job(job.id, JobEdit(schedules=[ScheduleEdit(schedule.id, expression="2")]))
    end = schedule.history.get(number=1).to_at
    assert end is not None
    assert 50 <= Execution.objects.count() <= 50 + 15, "the limit, and the instants of the last seconds"
    (reason, count), *others = dropped(schedule)
    assert (reason, others) == ("catch_up", [])
    assert count + Execution.objects.count() == int((end - start).total_seconds())
    assert audit_firings(start, end).clean


def test_backlog_fires_in_separate_transactions_before_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRE_BATCH_INSTANTS", 50)
    schedule = scheduled(Kind.EVERY, "1", ago=10 * MINUTE, catch_up="all")
    lifecycle.pause_job(schedule.job_id, note="")
    assert Execution.objects.count() >= 600
    assert not DroppedRange.objects.exists()
