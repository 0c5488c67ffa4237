"""An edit fires due instants by the old version, and the new one applies from then on; the audit agrees."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db.models import F

from jobs.definitions import lifecycle
from jobs.definitions.editing import edit_job
from jobs.domain.errors import Conflict, InvalidInput, NotFound
from jobs.domain.job_edit import JobEdit, ScheduleEdit
from jobs.domain.recurrence import CatchUp, Kind
from jobs.models import DroppedRange, Execution, Job, JobVersion, Schedule, ScheduleVersion
from jobs.scheduling.firing import fire_due_schedules
from jobs.verify.firings import audit_firings
from tests.support.factories import make_execution, make_job, make_schedule, make_worker, run_on
from tests.support.schedules import add_schedule

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def scheduled(kind: Kind, expression: str, *, ago: timedelta = timedelta(), **spec: Any) -> Schedule:
    """Create a schedule that long ago that catches up with all instants and has never fired."""
    created = datetime.now(UTC) - ago
    return add_schedule(make_job(max_concurrency=None), kind, expression, created=created, catch_up=CatchUp.ALL, **spec)


def edit(schedule: Schedule, **changes: Any) -> Schedule:
    """Edit one schedule and return its stored row."""
    edit_job(schedule.job_id, JobEdit(schedules=[ScheduleEdit(id=schedule.id, **changes)]))
    return Schedule.objects.get(id=schedule.id)


def every(schedule: Schedule, seconds: str, **changes: Any) -> Schedule:
    return edit(schedule, kind=Kind.EVERY, expression=seconds, **changes)


def let_pass(time: timedelta) -> None:
    """Make all stored rows older, as if that much time had passed without any firing."""
    columns: dict[Any, tuple[str, ...]] = {
        Schedule: ("starts_at", "next_instant", "next_fire_at"),
        ScheduleVersion: ("from_at", "to_at", "starts_at"),
        Execution: ("scheduled_for", "fired_at"),
        DroppedRange: ("first", "last"),
    }
    for model, names in columns.items():
        model.objects.update(**{name: F(name) - time for name in names})


def history(schedule: Schedule) -> list[ScheduleVersion]:
    return list(schedule.history.order_by("number"))


def instants(schedule: Schedule) -> list[datetime]:
    rows = Execution.objects.filter(schedule=schedule).order_by("scheduled_for")
    return list(rows.values_list("scheduled_for", flat=True))


def assert_clean() -> None:
    now = datetime.now(UTC)
    audit = audit_firings(now - timedelta(days=30), now)
    assert audit.clean, audit.differences


def test_due_instants_fire_by_the_old_version_and_later_ones_by_the_new() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=5.5 * MINUTE)
    start = schedule.starts_at
    after = every(schedule, "45")
    assert instants(schedule) == [start + n * MINUTE for n in range(1, 6)]
    old, new = history(schedule)
    assert (old.to_at, new.to_at, old.expression, new.expression) == (new.from_at, None, "60", "45")
    assert after.settled_count == 5
    expected = start + ((new.from_at - start) // timedelta(seconds=45) + 1) * timedelta(seconds=45)
    assert after.next_instant == after.next_fire_at == expected, "on the grid of its start"
    assert_clean()


def test_edits_neither_lose_nor_repeat_an_instant() -> None:
    schedule = scheduled(Kind.CRON, "* * * * *", ago=3 * MINUTE)
    edit(schedule, kind=Kind.CRON, expression="*/2 * * * *")
    let_pass(10 * MINUTE)
    edit(schedule, kind=Kind.CRON, expression="* * * * *")
    fired = instants(schedule)
    assert len(fired) == len(set(fired))
    second = history(schedule)[1]
    assert second.to_at is not None
    evens = [i for i in fired if second.from_at < i <= second.to_at]
    assert len(evens) in {5, 6}
    assert all(i.minute % 2 == 0 for i in evens)
    assert (
        Schedule.objects.get().next_instant == history(schedule)[-1].from_at.replace(second=0, microsecond=0) + MINUTE
    )
    assert_clean()


def test_edit_fires_instants_that_jitter_still_delayed() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=3.5 * MINUTE, jitter_seconds=3600)
    after = edit(schedule, jitter_seconds=5)
    assert len(instants(schedule)) == 3
    assert after.next_instant is not None
    assert after.next_fire_at is not None
    assert timedelta(0) <= after.next_fire_at - after.next_instant < timedelta(seconds=5)
    assert_clean()


def test_unrelated_edit_does_not_fire_jittered_instants() -> None:
    jittered = scheduled(Kind.EVERY, "60", ago=1.5 * MINUTE, jitter_seconds=3600)
    due = add_schedule(jittered.job, Kind.EVERY, "60", created=jittered.starts_at, catch_up=CatchUp.ALL)
    edit_job(jittered.job_id, JobEdit(args=["--new"]))
    assert instants(jittered) == []
    assert instants(due) == [due.starts_at + MINUTE]
    edit_job(jittered.job_id, JobEdit(schedules=[ScheduleEdit(id=jittered.id), ScheduleEdit(id=due.id, max_count=9)]))
    assert instants(jittered) == []
    edit_job(jittered.job_id, JobEdit(schedules=[ScheduleEdit(id=due.id)]))
    assert instants(jittered) == [jittered.starts_at + MINUTE], "the instants of a deleted schedule fire"
    assert_clean()


def test_edit_without_changes_writes_no_history() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    before = Schedule.objects.values().get()
    edit(schedule)
    every(schedule, "60", timezone="UTC", jitter_seconds=0)
    assert Schedule.objects.values().get() == before
    assert len(history(schedule)) == 1
    assert JobVersion.objects.count() == 1


def test_catch_up_policy_is_not_part_of_the_history() -> None:
    schedule = scheduled(Kind.EVERY, "60")
    after = edit(schedule, catch_up=CatchUp.NONE, catch_up_window_seconds=5.0)
    assert (after.catch_up, after.catch_up_window_seconds) == ("none", 5.0)
    assert (after.next_instant, len(history(schedule))) == (schedule.next_instant, 1)


def test_schedule_left_out_is_deleted_and_keeps_its_history() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=2.5 * MINUTE)
    edit_job(schedule.job_id, JobEdit(schedules=[ScheduleEdit(kind=Kind.CRON, expression="@daily")]))
    kept = Schedule.with_deleted.get(id=schedule.id)
    assert kept.deleted_at is not None
    assert (kept.next_instant, kept.settled_count) == (None, 2)
    assert [s.expression for s in Job.objects.get().schedules.all()] == ["@daily"]
    assert len(instants(schedule)) == 2
    assert history(schedule)[-1].to_at == kept.deleted_at
    assert_clean()


def test_other_schedules_keep_their_ids_and_instants() -> None:
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
def test_edit_that_exhausts_a_schedule_is_refused(changes: dict[str, Any], field: str) -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=2.5 * MINUTE)
    fire_due_schedules()
    with pytest.raises(InvalidInput) as caught:
        edit(schedule, **changes)
    assert caught.value.field == field
    assert Schedule.objects.values().get()["expression"] == "60"
    assert len(history(schedule)) == 1


def test_error_names_the_schedule_that_would_never_fire_again() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=2.5 * MINUTE, starts_at=datetime.now(UTC) - 3 * HOUR)
    with pytest.raises(InvalidInput, match=str(schedule.id)):
        edit(schedule, ends_at=datetime.now(UTC) - HOUR)


@pytest.mark.parametrize("other", ["unknown", "deleted", "of another job", "twice"])
def test_schedule_ids_must_belong_to_the_job(other: str) -> None:
    schedule = scheduled(Kind.EVERY, "60")
    ids: list[UUID] = [uuid4()]
    if other == "deleted":
        ids = [schedule.id]
        edit_job(schedule.job_id, JobEdit(schedules=[]))
    elif other == "of another job":
        ids = [make_schedule().id]
    elif other == "twice":
        ids = [schedule.id, schedule.id]
    with pytest.raises(InvalidInput) as caught:
        edit_job(schedule.job_id, JobEdit(schedules=[ScheduleEdit(id=each) for each in ids]))
    assert caught.value.field == f"schedules.{len(ids) - 1}.id"


def test_max_count_includes_instants_before_an_edit() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=3.5 * MINUTE)
    edit(schedule, max_count=5)
    let_pass(10 * MINUTE)
    fire_due_schedules()
    schedule.refresh_from_db()
    assert (schedule.settled_count, schedule.next_instant) == (5, None)
    assert len(instants(schedule)) == 5
    now = datetime.now(UTC)
    edited_at = history(schedule)[-1].from_at
    for since in (now - timedelta(days=1), edited_at, edited_at + MINUTE):
        assert audit_firings(since, now).clean, "whenever the audit begins"
    revived = edit(schedule, max_count=6)
    assert revived.next_instant is not None, "one instant is left"
    assert_clean()


def test_edit_revives_an_exhausted_schedule() -> None:
    schedule = scheduled(Kind.AT, (datetime.now(UTC) - MINUTE).isoformat(), ago=2 * MINUTE)
    later = datetime.now(UTC) + HOUR
    after = edit(schedule, kind=Kind.AT, expression=later.isoformat())
    assert len(instants(schedule)) == 1
    assert after.next_instant == later
    assert_clean()


def test_edited_schedule_stays_paused_and_its_pause_is_counted_by_the_old_version() -> None:
    schedule = scheduled(Kind.CRON, "* * * * *")
    lifecycle.pause_job(schedule.job_id, note="")
    let_pass(30 * MINUTE)
    after = edit(schedule, kind=Kind.CRON, expression="*/5 * * * *")
    assert after.next_instant is None
    assert [v.paused for v in history(schedule)] == [False, True, True]
    assert DroppedRange.objects.get().count in {30, 31}
    let_pass(20 * MINUTE)
    lifecycle.resume_job(schedule.job_id)
    counts = DroppedRange.objects.order_by("id").values_list("count", flat=True)
    assert counts[1] in {4, 5}
    resumed = Schedule.objects.get()
    assert resumed.next_instant is not None
    assert resumed.next_instant.minute % 5 == 0
    assert_clean()


def test_schedule_added_during_a_pause_starts_with_the_resume() -> None:
    job = scheduled(Kind.EVERY, "60").job
    lifecycle.pause_job(job.id, note="")
    edit_job(job.id, JobEdit(schedules=[ScheduleEdit(kind=Kind.EVERY, expression="7")]))
    added = Schedule.objects.get()
    assert added.next_instant is None
    assert [v.paused for v in history(added)] == [True]
    lifecycle.resume_job(job.id)
    added.refresh_from_db()
    assert added.next_instant is not None


def test_run_arms_a_delay_with_its_new_length() -> None:
    schedule = scheduled(Kind.DELAY, "600", ago=MINUTE)
    fire_due_schedules()
    (execution,) = Execution.objects.all()
    after = edit(schedule, kind=Kind.DELAY, expression="30")
    assert after.next_instant is None, "its run arms it"
    lifecycle.cancel_execution(execution.id, by="test")
    after.refresh_from_db()
    execution.refresh_from_db()
    assert execution.ended_at is not None
    assert after.next_instant == execution.ended_at + timedelta(seconds=30)
    assert_clean()


@pytest.mark.parametrize(("seconds", "waits"), [("1200", True), ("1", False)])
def test_edited_delay_counts_from_the_end_of_its_last_run(seconds: str, waits: bool) -> None:
    schedule = scheduled(Kind.DELAY, "600", ago=MINUTE)
    fire_due_schedules()
    (execution,) = Execution.objects.all()
    lifecycle.cancel_execution(execution.id, by="test")
    Execution.objects.filter(id=execution.id).update(ended_at=F("ended_at") - 100 * timedelta(seconds=1))
    execution.refresh_from_db()
    assert execution.ended_at is not None
    after = edit(schedule, kind=Kind.DELAY, expression=seconds)
    at_once = history(schedule)[-1].from_at + timedelta(microseconds=1)
    assert after.next_instant == (execution.ended_at + timedelta(seconds=1200) if waits else at_once)
    fire_due_schedules()
    assert len(instants(schedule)) == (1 if waits else 2)


def test_delay_becomes_a_cron_and_back() -> None:
    schedule = scheduled(Kind.DELAY, "600", ago=MINUTE)
    fire_due_schedules()
    (first,) = Execution.objects.all()
    after = edit(schedule, kind=Kind.CRON, expression="@hourly")
    lifecycle.cancel_execution(first.id, by="test")
    after.refresh_from_db()
    assert after.next_instant is not None
    assert after.next_instant.minute == 0, "a finishing run does not move a cron schedule"
    back = edit(schedule, kind=Kind.DELAY, expression="5")
    assert back.next_instant == back.starts_at, "at once"
    assert_clean()


def test_edit_ends_a_quarantine() -> None:
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
    assert old.to_at == instants(schedule)[-1], "no version was in force after it failed"
    assert new.expression == "@hourly"
    assert_clean()


def test_edit_creates_a_version_and_due_instants_run_the_old_one() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=1.5 * MINUTE)
    edit_job(schedule.job_id, JobEdit(name="renamed", args=["--new"], requirements={"memory_mb": 99}, priority=9))
    job = Job.objects.get()
    assert job.current_version is not None
    version = job.current_version
    assert (job.name, version.number, version.args, version.priority) == ("renamed", 2, ["--new"], 9)
    assert (version.memory_mb, version.cpu, version.disk_mb) == (99, 0.25, 16)
    assert Execution.objects.get().version.number == 1
    lifecycle.execute_job(job.id)
    assert Execution.objects.order_by("-id").values_list("version__number", flat=True)[0] == 2


def test_new_name_creates_no_version() -> None:
    job = make_job()
    edit_job(job.id, JobEdit(name="renamed", retry={"max_attempts": 1}))
    assert JobVersion.objects.count() == 1


def test_cancelled_or_deleted_job_cannot_be_edited() -> None:
    job = make_job()
    lifecycle.cancel_job(job.id, by="test")
    with pytest.raises(Conflict):
        edit_job(job.id, JobEdit(name="x"))
    lifecycle.delete_job(job.id, by="test")
    with pytest.raises(NotFound):
        edit_job(job.id, JobEdit(name="x"))


def test_deletion_stops_everything_and_keeps_the_history() -> None:
    schedule = scheduled(Kind.EVERY, "60", ago=2.5 * MINUTE)
    running = make_execution(job=schedule.job)
    run_on(make_worker(), running)
    lifecycle.delete_job(schedule.job_id, by="ada")
    job = Job.objects.get()
    assert (job.state, job.deleted_at is not None) == ("cancelled", True)
    assert Schedule.objects.count() == 0
    assert Schedule.with_deleted.get().next_instant is None
    assert sorted(Execution.objects.values_list("state", flat=True)) == ["cancelled", "cancelled", "running"]
    running.refresh_from_db()
    assert running.cancel_requested_at is not None
    with pytest.raises(NotFound):
        lifecycle.delete_job(job.id, by="ada")
    assert_clean()


def test_deleted_delay_is_not_armed_by_its_run() -> None:
    schedule = scheduled(Kind.DELAY, "5", ago=MINUTE)
    fire_due_schedules()
    edit_job(schedule.job_id, JobEdit(schedules=[]))
    lifecycle.cancel_execution(Execution.objects.get().id, by="test")
    assert Schedule.with_deleted.get().next_instant is None
