"""An edit settles what is due by what was in force, and what it changes counts from that moment; the auditor agrees."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db.models import F

from jobs.errors import Conflict, InvalidInput, NotFound
from jobs.models import DroppedRange, Execution, Job, JobVersion, Schedule, ScheduleVersion
from jobs.recurrence import CatchUp, Kind
from jobs.services import commands, schedules
from jobs.services.auditing import audit_firings
from jobs.services.editing import edit_job
from jobs.services.firing import fire_due_schedules
from jobs.services.job_edit import JobEdit, ScheduleEdit
from jobs.services.job_spec import ScheduleSpec
from tests.factories import make_execution, make_job, make_schedule, make_worker, run_on

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def scheduled(kind: Kind, expression: str, *, ago: timedelta = timedelta(), **spec: Any) -> Schedule:
    """Created that long ago, every instant to be caught up with, and no beat has looked at it since."""
    created = datetime.now(UTC) - ago
    wanted = ScheduleSpec(kind, expression, catch_up=CatchUp.ALL, **spec)
    planned = schedules.plan_schedule(0, wanted, created)
    schedules.create_schedules(make_job(max_concurrency=None), [planned], created)
    return planned


def edit(schedule: Schedule, **changes: Any) -> Schedule:
    """That one schedule; returns it as it is then."""
    edit_job(schedule.job_id, JobEdit(schedules=[ScheduleEdit(id=schedule.id, **changes)]))
    return Schedule.objects.get(id=schedule.id)


def every(schedule: Schedule, seconds: str, **changes: Any) -> Schedule:
    return edit(schedule, kind=Kind.EVERY, expression=seconds, **changes)


def let_pass(time: timedelta) -> None:
    """As if so much time had passed in which no beat did anything: all that is stored is so much older."""
    moments: dict[Any, tuple[str, ...]] = {
        Schedule: ("starts_at", "next_instant", "next_fire_at"),
        ScheduleVersion: ("from_at", "to_at", "starts_at"),
        Execution: ("scheduled_for", "fired_at"),
        DroppedRange: ("first", "last"),
    }
    for model, names in moments.items():
        model.objects.update(**{name: F(name) - time for name in names})


def history(schedule: Schedule) -> list[ScheduleVersion]:
    return list(schedule.history.order_by("number"))


def instants(schedule: Schedule) -> list[datetime]:
    rows = Execution.objects.filter(schedule=schedule).order_by("scheduled_for")
    return list(rows.values_list("scheduled_for", flat=True))


def assert_clean() -> None:
    now = datetime.now(UTC)
    found = audit_firings(now - timedelta(days=30), now)
    assert found.clean, found.differences


def test_what_is_due_fires_as_it_was_and_the_rest_as_it_is_then() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=5.5 * MINUTE)
    start = schedule.starts_at
    after = every(schedule, "45")
    assert instants(schedule) == [start + n * MINUTE for n in range(1, 6)]
    old, new = history(schedule)
    assert (old.to_at, new.to_at, old.expression, new.expression) == (new.from_at, None, "60", "45")
    assert after.settled_count == 5
    expected = start + ((new.from_at - start) // timedelta(seconds=45) + 1) * timedelta(seconds=45)
    assert after.next_instant == after.next_fire_at == expected, "on the grid of its own start"
    assert_clean()


def test_an_edited_schedule_goes_on_without_a_gap_or_a_repetition() -> None:
    schedule = scheduled(Kind.CRON, "* * * * *", ago=3 * MINUTE)
    edit(schedule, kind=Kind.CRON, expression="*/2 * * * *")
    let_pass(10 * MINUTE)
    edit(schedule, kind=Kind.CRON, expression="* * * * *")
    settled = instants(schedule)
    assert len(settled) == len(set(settled))
    second = history(schedule)[1]
    assert second.to_at is not None
    evens = [i for i in settled if second.from_at < i <= second.to_at]
    assert len(evens) in {5, 6}
    assert all(i.minute % 2 == 0 for i in evens)
    assert (
        Schedule.objects.get().next_instant == history(schedule)[-1].from_at.replace(second=0, microsecond=0) + MINUTE
    )
    assert_clean()


def test_what_was_jittered_into_the_future_is_settled_by_the_edit() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=3.5 * MINUTE, jitter_seconds=3600)
    after = edit(schedule, jitter_seconds=5)
    assert len(instants(schedule)) == 3
    assert after.next_instant is not None
    assert after.next_fire_at is not None
    assert timedelta(0) <= after.next_fire_at - after.next_instant < timedelta(seconds=5)
    assert_clean()


def test_an_edit_of_something_else_does_not_fire_what_its_jitter_holds_back() -> None:
    held = scheduled(Kind.EVERY, "60", ago=1.5 * MINUTE, jitter_seconds=3600)
    due = schedules.plan_schedule(0, ScheduleSpec(Kind.EVERY, "60", catch_up=CatchUp.ALL), held.starts_at)
    schedules.create_schedules(held.job, [due], held.starts_at)
    edit_job(held.job_id, JobEdit(args=["--new"]))
    assert instants(held) == []
    assert instants(due) == [due.starts_at + MINUTE]
    edit_job(held.job_id, JobEdit(schedules=[ScheduleEdit(id=held.id), ScheduleEdit(id=due.id, max_count=9)]))
    assert instants(held) == []
    edit_job(held.job_id, JobEdit(schedules=[ScheduleEdit(id=due.id)]))
    assert instants(held) == [held.starts_at + MINUTE], "what ends is settled"
    assert_clean()


def test_an_edit_of_nothing_writes_no_history() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    before = Schedule.objects.values().get()
    edit(schedule)
    every(schedule, "60", timezone="UTC", jitter_seconds=0)
    assert Schedule.objects.values().get() == before
    assert len(history(schedule)) == 1
    assert JobVersion.objects.count() == 1


def test_how_to_catch_up_is_no_matter_of_the_history() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    after = edit(schedule, catch_up=CatchUp.NONE, catch_up_window_seconds=5.0)
    assert (after.catch_up, after.catch_up_window_seconds) == ("none", 5.0)
    assert (after.next_instant, len(history(schedule))) == (schedule.next_instant, 1)


def test_a_schedule_that_is_left_out_is_deleted_and_keeps_its_history() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=2.5 * MINUTE)
    edit_job(schedule.job_id, JobEdit(schedules=[ScheduleEdit(kind=Kind.CRON, expression="@daily")]))
    kept = Schedule.with_deleted.get(id=schedule.id)
    assert kept.deleted_at is not None
    assert (kept.next_instant, kept.settled_count) == (None, 2)
    assert [s.expression for s in Job.objects.get().schedules.all()] == ["@daily"]
    assert len(instants(schedule)) == 2
    assert history(schedule)[-1].to_at == kept.deleted_at
    assert_clean()


def test_the_others_keep_their_ids_and_moments() -> None:
    first = scheduled(Kind.EVERY, "60")
    edit_job(
        first.job_id,
        JobEdit(schedules=[ScheduleEdit(id=first.id), ScheduleEdit(kind=Kind.EVERY, expression="30", max_count=3)]),
    )
    rows = list(Schedule.objects.order_by("id"))
    assert rows[0].id == first.id
    assert (rows[0].next_instant, rows[1].max_count) == (first.next_instant, 3)
    new = history(rows[1])[0]
    assert new.from_at == rows[1].starts_at
    assert rows[1].next_instant == new.from_at + timedelta(seconds=30)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kind": Kind.AT, "expression": "2020-01-01T00:00:00+00:00"}, "schedules.0.at"),
        ({"kind": Kind.CRON, "expression": "0 0 30 2 *"}, "schedules.0.cron"),
        ({"ends_at": datetime(2020, 1, 1, tzinfo=UTC)}, "schedules.0.ends_at"),
        ({"max_count": 2}, "schedules.0.max_count"),
    ],
)
def test_an_edit_that_ends_a_schedule_is_refused_as_a_whole(changes: dict[str, Any], field: str) -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=2.5 * MINUTE)
    fire_due_schedules()
    with pytest.raises(InvalidInput) as caught:
        edit(schedule, **changes)
    assert caught.value.field == field
    assert Schedule.objects.values().get()["expression"] == "60"
    assert len(history(schedule)) == 1


def test_a_schedule_that_would_never_fire_again_is_named() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=2.5 * MINUTE, starts_at=datetime.now(UTC) - 3 * HOUR)
    with pytest.raises(InvalidInput, match=str(schedule.id)):
        edit(schedule, ends_at=datetime.now(UTC) - HOUR)


@pytest.mark.parametrize("other", ["unknown", "deleted", "of another job", "twice"])
def test_ids_must_be_the_jobs_own(other: str) -> None:
    schedule = scheduled(Kind.EVERY, "60")
    wanted: list[UUID] = [uuid4()]
    if other == "deleted":
        wanted = [schedule.id]
        edit_job(schedule.job_id, JobEdit(schedules=[]))
    elif other == "of another job":
        wanted = [make_schedule().id]
    elif other == "twice":
        wanted = [schedule.id, schedule.id]
    with pytest.raises(InvalidInput) as caught:
        edit_job(schedule.job_id, JobEdit(schedules=[ScheduleEdit(id=each) for each in wanted]))
    assert caught.value.field == f"schedules.{len(wanted) - 1}.id"


def test_a_maximum_count_counts_over_edits() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=3.5 * MINUTE)
    edit(schedule, max_count=5)
    let_pass(10 * MINUTE)
    fire_due_schedules()
    schedule.refresh_from_db()
    assert (schedule.settled_count, schedule.next_instant) == (5, None)
    assert len(instants(schedule)) == 5
    now = datetime.now(UTC)
    late = history(schedule)[-1].from_at
    for since in (now - timedelta(days=1), late, late + MINUTE):
        assert audit_firings(since, now).clean, "wherever the audit begins"
    revived = edit(schedule, max_count=6)
    assert revived.next_instant is not None, "one is left"
    assert_clean()


def test_an_exhausted_schedule_comes_to_life_again() -> None:
    schedule = scheduled(Kind.AT, (datetime.now(UTC) - MINUTE).isoformat(), ago=2 * MINUTE)
    later = datetime.now(UTC) + HOUR
    after = edit(schedule, kind=Kind.AT, expression=later.isoformat())
    assert len(instants(schedule)) == 1
    assert after.next_instant == later
    assert_clean()


def test_a_paused_schedule_stays_paused_and_its_pause_is_counted_by_what_was_in_force() -> None:
    schedule = scheduled(Kind.CRON, "* * * * *")
    commands.pause_job(schedule.job_id, note="")
    let_pass(30 * MINUTE)
    after = edit(schedule, kind=Kind.CRON, expression="*/5 * * * *")
    assert after.next_instant is None
    assert [v.paused for v in history(schedule)] == [False, True, True]
    assert DroppedRange.objects.get().count in {30, 31}
    let_pass(20 * MINUTE)
    commands.resume_job(schedule.job_id)
    counts = DroppedRange.objects.order_by("id").values_list("count", flat=True)
    assert counts[1] in {4, 5}
    resumed = Schedule.objects.get()
    assert resumed.next_instant is not None
    assert resumed.next_instant.minute % 5 == 0
    assert_clean()


def test_a_schedule_added_during_a_pause_waits_for_its_end() -> None:
    job = scheduled(Kind.EVERY, "60").job
    commands.pause_job(job.id, note="")
    edit_job(job.id, JobEdit(schedules=[ScheduleEdit(kind=Kind.EVERY, expression="7")]))
    added = Schedule.objects.get()
    assert added.next_instant is None
    assert [v.paused for v in history(added)] == [True]
    commands.resume_job(job.id)
    added.refresh_from_db()
    assert added.next_instant is not None


def test_a_delay_under_way_is_armed_with_the_new_length() -> None:
    schedule = scheduled(Kind.DELAY, "600", ago=MINUTE)
    fire_due_schedules()
    (execution,) = Execution.objects.all()
    after = edit(schedule, kind=Kind.DELAY, expression="30")
    assert after.next_instant is None, "its run arms it"
    commands.cancel_execution(execution.id, by="test")
    after.refresh_from_db()
    execution.refresh_from_db()
    assert execution.ended_at is not None
    assert after.next_instant == execution.ended_at + timedelta(seconds=30)
    assert_clean()


@pytest.mark.parametrize(("seconds", "waits"), [("1200", True), ("1", False)])
def test_an_armed_delay_counts_from_the_end_of_its_last_run(seconds: str, waits: bool) -> None:
    schedule = scheduled(Kind.DELAY, "600", ago=MINUTE)
    fire_due_schedules()
    (execution,) = Execution.objects.all()
    commands.cancel_execution(execution.id, by="test")
    Execution.objects.filter(id=execution.id).update(ended_at=F("ended_at") - 100 * timedelta(seconds=1))
    execution.refresh_from_db()
    assert execution.ended_at is not None
    after = edit(schedule, kind=Kind.DELAY, expression=seconds)
    at_once = history(schedule)[-1].from_at + timedelta(microseconds=1)
    assert after.next_instant == (execution.ended_at + timedelta(seconds=1200) if waits else at_once)
    fire_due_schedules()
    assert len(instants(schedule)) == (1 if waits else 2)


def test_a_delay_becomes_a_cron_and_back() -> None:
    schedule = scheduled(Kind.DELAY, "600", ago=MINUTE)
    fire_due_schedules()
    (first,) = Execution.objects.all()
    after = edit(schedule, kind=Kind.CRON, expression="@hourly")
    commands.cancel_execution(first.id, by="test")
    after.refresh_from_db()
    assert after.next_instant is not None
    assert after.next_instant.minute == 0, "the end of the run does not move a cron"
    back = edit(schedule, kind=Kind.DELAY, expression="5")
    assert back.next_instant == back.starts_at, "at once"
    assert_clean()


def test_a_schedule_in_quarantine_is_cured_by_an_edit() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=3.5 * MINUTE)
    fire_due_schedules()
    Schedule.objects.update(kind="cron", expression="no cron", next_instant=datetime.now(UTC) - MINUTE)
    Schedule.objects.update(next_fire_at=F("next_instant"))
    fire_due_schedules()
    assert Schedule.objects.get().quarantined_at is not None
    after = edit(schedule, kind=Kind.CRON, expression="@hourly")
    assert (after.quarantined_at, after.quarantine_error) == (None, "")
    assert after.next_instant is not None
    old, new = history(schedule)
    assert old.to_at == instants(schedule)[-1], "nothing was in force after it failed"
    assert new.expression == "@hourly"
    assert_clean()


def test_what_runs_is_a_new_version_and_what_was_due_ran_the_old_one() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=1.5 * MINUTE)
    edit_job(schedule.job_id, JobEdit(name="renamed", args=["--new"], requirements={"memory_mb": 99}, priority=9))
    job = Job.objects.get()
    assert job.current_version is not None
    version = job.current_version
    assert (job.name, version.number, version.args, version.priority) == ("renamed", 2, ["--new"], 9)
    assert (version.memory_mb, version.cpu, version.disk_mb) == (99, 0.25, 16)
    assert Execution.objects.get().version.number == 1
    commands.execute_job(job.id)
    assert Execution.objects.order_by("-id").values_list("version__number", flat=True)[0] == 2


def test_a_name_alone_is_no_new_version() -> None:
    job = make_job()
    edit_job(job.id, JobEdit(name="renamed", retry={"max_attempts": 1}))
    assert JobVersion.objects.count() == 1


def test_a_cancelled_or_deleted_job_is_not_edited() -> None:
    job = make_job()
    commands.cancel_job(job.id, by="test")
    with pytest.raises(Conflict):
        edit_job(job.id, JobEdit(name="x"))
    commands.delete_job(job.id, by="test")
    with pytest.raises(NotFound):
        edit_job(job.id, JobEdit(name="x"))


def test_deleting_stops_everything_and_keeps_the_history() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=2.5 * MINUTE)
    running = make_execution(job=schedule.job)
    run_on(make_worker(), running)
    commands.delete_job(schedule.job_id, by="ada")
    job = Job.objects.get()
    assert (job.state, job.deleted_at is not None) == ("cancelled", True)
    assert Schedule.objects.count() == 0
    assert Schedule.with_deleted.get().next_instant is None
    assert sorted(Execution.objects.values_list("state", flat=True)) == ["cancelled", "cancelled", "running"]
    running.refresh_from_db()
    assert running.cancel_requested_at is not None
    with pytest.raises(NotFound):
        commands.delete_job(job.id, by="ada")
    assert_clean()


def test_deleting_a_delay_under_way_leaves_it_over() -> None:
    schedule = scheduled(Kind.DELAY, "5", ago=MINUTE)
    fire_due_schedules()
    edit_job(schedule.job_id, JobEdit(schedules=[]))
    commands.cancel_execution(Execution.objects.get().id, by="test")
    assert Schedule.with_deleted.get().next_instant is None
