"""Every instant is accounted for once, by the version in force, whatever the policy and however often beat looks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError

from jobs import conf
from jobs.models import Execution, JobVersion, Schedule, Trigger
from jobs.recurrence import jittered
from jobs.services.firing import FireResult, fire_due_schedules, seconds_until_next_due
from jobs.services.transitions import NewExecution, create_executions
from jobs.states import State
from tests.factories import make_execution, make_job, make_schedule

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def minutes_ago(minutes: float) -> datetime:
    return datetime.now(UTC) - minutes * MINUTE


def due_schedule(minutes: float, **fields: Any) -> Schedule:
    """Its first instant lay that long ago, and it comes every minute."""
    first = minutes_ago(minutes)
    return make_schedule(**{"starts_at": first, "next_instant": first} | fields)


def states(schedule: Schedule) -> list[str]:
    return list(Execution.objects.filter(schedule=schedule).order_by("scheduled_for").values_list("state", flat=True))


def test_nothing_due_does_nothing() -> None:
    schedule = make_schedule(next_instant=datetime.now(UTC) + MINUTE)
    assert fire_due_schedules() == FireResult()
    assert states(schedule) == []


def test_a_due_instant_becomes_one_ready_execution_of_the_nominal_instant() -> None:
    instant = minutes_ago(0.01)
    schedule = make_schedule(starts_at=instant, next_instant=instant)
    result = fire_due_schedules()
    assert result == FireResult(schedules=1, fired=1)
    execution = Execution.objects.get(schedule=schedule)
    assert (execution.state, execution.trigger, execution.scheduled_for) == ("ready", "schedule", instant)
    assert execution.run_id == execution.id, "a firing starts a run of its own"
    assert execution.version_id == schedule.job.current_version_id
    schedule.refresh_from_db()
    assert schedule.next_instant == schedule.next_fire_at == instant + MINUTE


def test_firing_again_changes_nothing() -> None:
    schedule = due_schedule(0.01)
    fire_due_schedules()
    assert fire_due_schedules() == FireResult()
    assert states(schedule) == ["ready"]


def test_an_instant_that_has_its_execution_already_gets_no_second_one() -> None:
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
    assert instants[0] == schedule.next_instant, "from the one that was stored"
    assert all(b - a == MINUTE for a, b in pairwise(instants))
    assert states(schedule) == ["ready"] * 6


def test_catch_up_latest_fires_the_newest_and_records_the_others_as_missed() -> None:
    schedule = due_schedule(5.5, catch_up="latest")
    assert fire_due_schedules() == FireResult(schedules=1, fired=1, missed=5)
    assert states(schedule) == ["missed"] * 5 + ["ready"]
    assert all(e.ended_at for e in Execution.objects.filter(state="missed"))


def test_catch_up_none_records_all_old_instants_as_missed_and_still_fires_a_fresh_one() -> None:
    schedule = due_schedule(3.02, catch_up="none")
    assert fire_due_schedules() == FireResult(schedules=1, fired=1, missed=3)
    assert states(schedule) == ["missed"] * 3 + ["ready"], "the last is younger than the grace"


def test_outside_the_window_even_catch_up_all_drops() -> None:
    schedule = due_schedule(5.5, catch_up="all", catch_up_window_seconds=170)
    fire_due_schedules()
    assert states(schedule) == ["missed"] * 3 + ["ready"] * 3


def test_latest_over_several_batches_fires_only_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "FIRE_BATCH_INSTANTS_EACH", 4)
    schedule = due_schedule(9.5, catch_up="latest")
    results = []
    while (result := fire_due_schedules()).schedules:
        results.append(result)
    assert [(r.fired, r.missed, r.more) for r in results] == [(0, 4, True), (0, 4, True), (1, 1, False)]
    assert states(schedule) == ["missed"] * 9 + ["ready"]


def jittered_schedule(wanted: timedelta) -> tuple[UUID, datetime]:
    """An id and a recent instant whose jittered moment (of an hour) lies that far after the instant or further."""
    from jobs.models.ids import new_id

    instant = minutes_ago(0.5)
    return next((i, instant) for i in (new_id() for _ in range(1000)) if jittered(i, instant, 3600) - instant > wanted)


def test_an_instant_whose_jittered_moment_has_not_come_stays() -> None:
    schedule_id, instant = jittered_schedule(timedelta(minutes=5))
    schedule = make_schedule(
        id=schedule_id, starts_at=instant, next_instant=instant, expression="86400", jitter_seconds=3600
    )
    # Taken early, as after an edit: the moment is computed anew and the instant waits for it.
    assert fire_due_schedules() == FireResult(schedules=1)
    assert states(schedule) == []
    schedule.refresh_from_db()
    assert schedule.next_instant == instant
    assert schedule.next_fire_at == jittered(schedule_id, instant, 3600)
    assert fire_due_schedules() == FireResult()


def test_an_instant_fires_within_its_jitter_whatever_the_policy() -> None:
    instant = minutes_ago(2)
    schedule = make_schedule(
        starts_at=instant, next_instant=instant, expression="86400", jitter_seconds=115, catch_up="none"
    )
    assert fire_due_schedules().fired == 1, "jitter is no downtime"
    assert Execution.objects.get(schedule=schedule).scheduled_for == instant


def test_after_its_end_a_schedule_has_no_next_instant() -> None:
    first = minutes_ago(2.5)
    schedule = make_schedule(starts_at=first, next_instant=first, catch_up="all", ends_at=first + 1.5 * MINUTE)
    assert fire_due_schedules().fired == 2
    schedule.refresh_from_db()
    assert (schedule.next_instant, schedule.next_fire_at) == (None, None)
    assert seconds_until_next_due() is None


def test_a_single_instant_fires_once_and_for_all() -> None:
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
def test_a_broken_schedule_is_quarantined_and_its_batch_fires(kind: str, expression: str, timezone: str) -> None:
    broken = due_schedule(2, kind=kind, expression=expression, timezone=timezone)
    sound = [due_schedule(0.01) for _ in range(2)]
    result = fire_due_schedules()
    assert (result.quarantined, result.fired) == (1, 2)
    broken.refresh_from_db()
    assert broken.quarantined_at is not None
    assert broken.quarantine_error
    assert (broken.next_instant, states(broken)) == (None, [])
    assert [states(s) for s in sound] == [["ready"], ["ready"]]
    assert fire_due_schedules() == FireResult(), "a quarantined schedule is not looked at again"


def test_the_version_in_force_is_used_and_later_ones_leave_it_alone() -> None:
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


def test_a_batch_is_limited_and_says_that_there_is_more() -> None:
    for minute in (3, 2, 1):
        due_schedule(minute, expression="86400")
    assert fire_due_schedules(limit=2).more
    left = Schedule.objects.get(next_fire_at__lte=datetime.now(UTC))
    assert left.next_instant is not None
    assert left.next_instant > minutes_ago(1.5), "the earliest are taken first"
    last = fire_due_schedules(limit=2)
    assert (last.schedules, last.more) == (1, False)


def test_rank_puts_priority_into_seconds_of_waiting() -> None:
    job = make_job(priority=7)
    execution = make_execution(job=job)
    assert execution.ready_at is not None
    assert abs((execution.ready_at - execution.rank).total_seconds() - 7 * 60) < 1


def test_the_next_due_moment_counts_schedules_and_retries() -> None:
    assert seconds_until_next_due() is None
    make_schedule(next_instant=datetime.now(UTC) + 10 * MINUTE)
    wait = seconds_until_next_due()
    assert wait is not None
    assert 590 < wait <= 600
    Execution.objects.filter(id=make_execution().id).update(
        state="backing_off", retry_at=datetime.now(UTC) + timedelta(seconds=30)
    )
    wait = seconds_until_next_due()
    assert wait is not None
    assert 20 < wait <= 30


def test_a_batch_that_fails_leaves_neither_executions_nor_an_advanced_schedule(
    scheduled_executions_refused: None,
) -> None:
    schedule = due_schedule(0.01)
    before = Schedule.objects.values().get(id=schedule.id)
    with pytest.raises(DatabaseError):
        fire_due_schedules()
    assert Schedule.objects.values().get(id=schedule.id) == before
    assert states(schedule) == []


def test_a_run_has_one_execution_of_a_job() -> None:
    execution = make_execution()
    create_executions([NewExecution(execution.job_id, Trigger.DEPENDENCY, run_id=execution.run_id)])
    assert Execution.objects.get().id == execution.id


def test_missed_is_an_end_and_not_a_place_in_the_queue() -> None:
    execution = make_execution(state=State.MISSED)
    assert (execution.ready_at, execution.worker_id) == (None, None)
    assert execution.ended_at is not None
