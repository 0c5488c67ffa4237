"""Every instant fires or is recorded once, by the version in force, under every policy."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError

from jobs.domain import limits
from jobs.domain.recurrence import CatchUp, Kind, add_jitter, count_instants
from jobs.domain.states import State
from jobs.execution.transitions import NewExecution, create_executions
from jobs.models import DroppedRange, Execution, JobVersion, Schedule, Trigger
from jobs.scheduling import schedules
from jobs.scheduling.firing import FireResult, fire_due_schedules, read_next_due
from jobs.verify.firings import audit_firings
from tests.support.factories import make_execution, make_job, make_schedule
from tests.support.schedules import add_schedule

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def minutes_ago(minutes: float) -> datetime:
    return datetime.now(UTC) - minutes * MINUTE


def due_schedule(minutes: float, **fields: Any) -> Schedule:
    """Create a schedule of one instant per minute that first was due that long ago."""
    first = minutes_ago(minutes)
    return make_schedule(**{"starts_at": first, "next_instant": first} | fields)


def states(schedule: Schedule) -> list[str]:
    return list(Execution.objects.filter(schedule=schedule).order_by("scheduled_for").values_list("state", flat=True))


def test_nothing_due_does_nothing() -> None:
    schedule = make_schedule(next_instant=datetime.now(UTC) + MINUTE)
    assert fire_due_schedules() == FireResult()
    assert states(schedule) == []


def test_due_instant_becomes_one_ready_execution() -> None:
    instant = minutes_ago(0.01)
    schedule = make_schedule(starts_at=instant, next_instant=instant)
    result = fire_due_schedules()
    assert result == FireResult(schedules=1, fired=1)
    execution = Execution.objects.get(schedule=schedule)
    assert (execution.state, execution.trigger, execution.scheduled_for) == ("ready", "schedule", instant)
    assert execution.run_id == execution.id, "a firing starts a run"
    assert execution.version_id == schedule.job.current_version_id
    schedule.refresh_from_db()
    assert schedule.next_instant == schedule.next_fire_at == instant + MINUTE


def test_firing_again_changes_nothing() -> None:
    schedule = due_schedule(0.01)
    fire_due_schedules()
    assert fire_due_schedules() == FireResult()
    assert states(schedule) == ["ready"]


def test_instant_with_an_execution_gets_no_second_one() -> None:
    instant = minutes_ago(0.01)
    schedule = make_schedule(starts_at=instant, next_instant=instant)
    fire_due_schedules()
    Schedule.objects.update(next_instant=instant, next_fire_at=instant)
    fire_due_schedules()
    assert states(schedule) == ["ready"]
    schedule.refresh_from_db()
    assert schedule.next_instant == instant + MINUTE


def test_catch_up_all_fires_every_instant_in_order() -> None:
    schedule = due_schedule(5.5, catch_up="all")
    assert fire_due_schedules().fired == 6
    instants = list(Execution.objects.order_by("scheduled_for").values_list("scheduled_for", flat=True))
    assert instants[0] == schedule.next_instant, "the stored instant comes first"
    assert all(b - a == MINUTE for a, b in pairwise(instants))
    assert states(schedule) == ["ready"] * 6


def test_catch_up_latest_fires_the_newest_and_records_others_as_missed() -> None:
    schedule = due_schedule(5.5, catch_up="latest")
    assert fire_due_schedules() == FireResult(schedules=1, fired=1, missed=5)
    assert states(schedule) == ["missed"] * 5 + ["ready"]
    assert all(e.ended_at for e in Execution.objects.filter(state="missed"))


def test_catch_up_none_fires_only_instants_within_the_grace_period() -> None:
    schedule = due_schedule(3.02, catch_up="none")
    assert fire_due_schedules() == FireResult(schedules=1, fired=1, missed=3)
    assert states(schedule) == ["missed"] * 3 + ["ready"], "the last is within the grace period"


def test_catch_up_all_misses_instants_outside_the_window() -> None:
    schedule = due_schedule(5.5, catch_up="all", catch_up_window_seconds=170)
    fire_due_schedules()
    assert states(schedule) == ["missed"] * 3 + ["ready"] * 3


def test_catch_up_latest_is_independent_of_the_batch_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRE_BATCH_INSTANTS_PER_SCHEDULE", 4)
    schedule = due_schedule(9.5, catch_up="latest")
    assert fire_due_schedules() == FireResult(schedules=1, fired=1, missed=9)
    assert states(schedule) == ["missed"] * 9 + ["ready"]


YEAR = timedelta(days=365)


@pytest.mark.parametrize(
    ("kind", "expression", "timezone"),
    [("every", "1", "UTC"), ("cron", "* * * * *", "Europe/Paris"), ("cron", "*/7 1-5 * * 1-5", "America/New_York")],
)
@pytest.mark.parametrize("catch_up", ["latest", "none"])
@pytest.mark.parametrize("max_count", [None, 10_000])
def test_year_of_missed_instants_is_counted_in_one_step(
    kind: str, expression: str, timezone: str, catch_up: str, max_count: int | None
) -> None:
    start = datetime.now(UTC).replace(second=30, microsecond=0) - YEAR
    policy = {"timezone": timezone, "catch_up": CatchUp(catch_up), "max_count": max_count}
    schedule = add_schedule(make_job(), Kind(kind), expression, created=start, starts_at=start, **policy)
    began = time.monotonic()
    result = fire_due_schedules()
    assert time.monotonic() - began < 10, "enumerating all instants takes a minute"
    now = datetime.now(UTC)
    assert result.schedules == 1
    assert not result.more
    due = count_instants(schedules.recurrence_of(schedule), start, now)
    due = due if max_count is None else min(due, max_count)
    assert due - 15 <= result.missed + result.fired <= due, "a few instants may have become due since"
    dropped = DroppedRange.objects.get(schedule=schedule)
    fired = Execution.objects.filter(schedule=schedule, state="ready").count()
    assert fired == result.fired
    assert dropped.count + Execution.objects.filter(schedule=schedule).count() == result.missed + result.fired
    if catch_up == "latest":
        assert fired >= 1
    audit = audit_firings(start, now, tolerance_seconds=60)
    assert audit.clean, audit.differences
    assert audit.dropped == dropped.count


def test_on_time_schedules_fire_before_catch_up() -> None:
    old = [due_schedule(600, catch_up="all") for _ in range(3)]
    fresh = due_schedule(0.01)
    result = fire_due_schedules(limit=2)
    assert states(fresh) == ["ready"]
    assert result.more
    while fire_due_schedules(limit=2).more:
        pass
    assert all(len(states(schedule)) == 601 for schedule in old)


def test_batch_fires_a_bounded_number_of_instants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRE_BATCH_INSTANTS", 10)
    rows = [due_schedule(7.5, catch_up="all") for _ in range(4)]
    first = fire_due_schedules()
    assert (first.fired, first.more) == (10, True)
    while (result := fire_due_schedules()).more:
        assert result.fired <= 10
    assert [len(states(schedule)) for schedule in rows] == [8] * 4


def test_long_backlog_does_not_delay_other_late_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRE_BATCH_INSTANTS", 10)
    old = [due_schedule(600 + n, catch_up="all") for n in range(3)]
    others = [due_schedule(5.5, catch_up="all"), due_schedule(1.5, catch_up="latest")]
    for _ in range(6):
        fire_due_schedules()
    assert [states(schedule).count("ready") for schedule in others] == [6, 1]
    assert all(len(states(schedule)) > 6 for schedule in old), "the backlogs progress too"


def jittered_schedule(min_delay: timedelta) -> tuple[UUID, datetime]:
    """Return an id and a recent instant that a jitter of an hour delays by at least that much."""
    from jobs.models.ids import new_id

    instant = minutes_ago(0.5)
    return next(
        (i, instant) for i in (new_id() for _ in range(1000)) if add_jitter(i, instant, 3600) - instant > min_delay
    )


def test_instant_stays_due_until_its_jitter_delay_has_passed() -> None:
    schedule_id, instant = jittered_schedule(timedelta(minutes=5))
    schedule = make_schedule(
        id=schedule_id, starts_at=instant, next_instant=instant, expression="86400", jitter_seconds=3600
    )
    # next_fire_at is too early, as after an edit: firing computes it again.
    assert fire_due_schedules() == FireResult(schedules=1)
    assert states(schedule) == []
    schedule.refresh_from_db()
    assert schedule.next_instant == instant
    assert schedule.next_fire_at == add_jitter(schedule_id, instant, 3600)
    assert fire_due_schedules() == FireResult()


def test_jitter_delay_does_not_count_as_lateness() -> None:
    instant = minutes_ago(2)
    schedule = make_schedule(
        starts_at=instant, next_instant=instant, expression="86400", jitter_seconds=115, catch_up="none"
    )
    assert fire_due_schedules().fired == 1, "a jitter delay is not lateness"
    assert Execution.objects.get(schedule=schedule).scheduled_for == instant


def test_schedule_has_no_next_instant_after_its_end() -> None:
    first = minutes_ago(2.5)
    schedule = make_schedule(starts_at=first, next_instant=first, catch_up="all", ends_at=first + 1.5 * MINUTE)
    assert fire_due_schedules().fired == 2
    schedule.refresh_from_db()
    assert (schedule.next_instant, schedule.next_fire_at) == (None, None)
    assert read_next_due().seconds is None


def test_single_instant_fires_once() -> None:
    at = minutes_ago(0.01)
    schedule = make_schedule(kind="at", expression=at.isoformat(), starts_at=at, next_instant=at)
    assert fire_due_schedules().fired == 1
    assert fire_due_schedules() == FireResult()
    schedule.refresh_from_db()
    assert schedule.next_instant is None


@pytest.mark.parametrize(
    ("kind", "expression", "timezone"),
    [
        ("cron", "this is no cron", "UTC"),
        ("every", "0", "UTC"),
        ("cron", "* * * * *", "Mars/Olympus"),
        ("at", "x", "UTC"),
    ],
)
def test_broken_schedule_is_quarantined_and_the_batch_fires(kind: str, expression: str, timezone: str) -> None:
    broken = due_schedule(2, kind=kind, expression=expression, timezone=timezone)
    healthy = [due_schedule(0.01) for _ in range(2)]
    result = fire_due_schedules()
    assert (result.quarantined, result.fired) == (1, 2)
    broken.refresh_from_db()
    assert broken.quarantined_at is not None
    assert broken.quarantine_error
    assert (broken.next_instant, states(broken)) == (None, [])
    assert [states(s) for s in healthy] == [["ready"], ["ready"]]
    assert fire_due_schedules() == FireResult(), "a quarantined schedule is not fired again"


def test_execution_keeps_the_version_in_force_when_it_fired() -> None:
    schedule = due_schedule(0.01)
    job, old = schedule.job, schedule.job.current_version
    assert old is not None
    fire_due_schedules()
    new = JobVersion.objects.get(id=old.id)
    new.pk, new.number, new.priority = None, 2, 9
    new.id = Schedule._meta.get_field("id").get_default()
    new.save(force_insert=True)
    job.current_version = new
    job.save()
    Schedule.objects.update(next_instant=minutes_ago(0.005), next_fire_at=minutes_ago(0.005))
    fire_due_schedules()
    versions = Execution.objects.order_by("id").values_list("version__number", flat=True)
    assert list(versions) == [1, 2]


def test_batch_is_limited_and_reports_more() -> None:
    for minute in (3, 2, 1):
        due_schedule(minute, expression="86400")
    assert fire_due_schedules(limit=2).more
    remaining = Schedule.objects.get(next_fire_at__lte=datetime.now(UTC))
    assert remaining.next_instant is not None
    assert remaining.next_instant > minutes_ago(1.5), "the earliest fire first"
    last = fire_due_schedules(limit=2)
    assert (last.schedules, last.more) == (1, False)


def test_rank_converts_priority_into_waiting_time() -> None:
    job = make_job(priority=7)
    execution = make_execution(job=job)
    assert execution.ready_at is not None
    assert abs((execution.ready_at - execution.rank).total_seconds() - 7 * 60) < 1


def test_next_due_time_includes_schedules_and_retries() -> None:
    assert read_next_due().seconds is None
    make_schedule(next_instant=datetime.now(UTC) + 10 * MINUTE)
    wait = read_next_due().seconds
    assert wait is not None
    assert 590 < wait <= 600
    Execution.objects.filter(id=make_execution().id).update(
        state="backing_off", retry_at=datetime.now(UTC) + timedelta(seconds=30)
    )
    wait = read_next_due().seconds
    assert wait is not None
    assert 20 < wait <= 30


def test_failed_batch_changes_nothing(
    scheduled_executions_refused: None,
) -> None:
    schedule = due_schedule(0.01)
    before = Schedule.objects.values().get(id=schedule.id)
    with pytest.raises(DatabaseError):
        fire_due_schedules()
    assert Schedule.objects.values().get(id=schedule.id) == before
    assert states(schedule) == []


def test_run_has_one_execution_per_job() -> None:
    execution = make_execution()
    create_executions([NewExecution(execution.job_id, Trigger.DEPENDENCY, run_id=execution.run_id)])
    assert Execution.objects.get().id == execution.id


def test_missed_execution_is_finished_and_not_queued() -> None:
    execution = make_execution(state=State.MISSED)
    assert (execution.ready_at, execution.worker_id) == (None, None)
    assert execution.ended_at is not None
