"""A firing whose job is busy waits, is skipped or has the oldest ones cancelled, as the job says, and is recorded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs import conf
from jobs.models import Execution, Job, Schedule
from jobs.services.firing import FireResult, fire_due_schedules
from jobs.states import State
from tests.factories import make_execution, make_job, make_schedule, make_worker, run_on

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def due_schedule(job: Job, *, minutes: float = 0.01, **fields: Any) -> Schedule:
    """Due once a minute since then; every instant of it would fire."""
    first = datetime.now(UTC) - minutes * MINUTE
    return make_schedule(job=job, **{"starts_at": first, "next_instant": first, "catch_up": "all"} | fields)


def outcomes(schedule: Schedule) -> list[tuple[str, str | None]]:
    rows = Execution.objects.filter(schedule=schedule).order_by("scheduled_for")
    return list(rows.values_list("state", "reason"))


@pytest.mark.parametrize("overlap", ["queue", "skip", "cancel_running"])
def test_a_job_that_is_not_busy_just_fires(overlap: str) -> None:
    schedule = due_schedule(make_job(overlap=overlap, max_concurrency=1))
    assert fire_due_schedules() == FireResult(schedules=1, fired=1)
    assert outcomes(schedule) == [("ready", None)]


@pytest.mark.parametrize("overlap", ["queue", "skip", "cancel_running"])
def test_without_a_limit_nothing_overlaps(overlap: str) -> None:
    job = make_job(overlap=overlap, max_concurrency=None)
    busy = [make_execution(job=job) for _ in range(3)]
    schedule = due_schedule(job, minutes=2.5)
    assert fire_due_schedules().fired == 3
    assert outcomes(schedule) == [("ready", None)] * 3
    assert Execution.objects.filter(id__in=[e.id for e in busy], state="ready").count() == 3


def test_queue_waits_behind_what_runs() -> None:
    job = make_job(overlap="queue", max_concurrency=1)
    running = make_execution(job=job)
    run_on(make_worker(), running)
    schedule = due_schedule(job, minutes=1.5)
    assert fire_due_schedules().fired == 2
    assert outcomes(schedule) == [("ready", None)] * 2
    running.refresh_from_db()
    assert (running.state, running.cancel_requested_at) == ("running", None)


def test_queue_has_a_bounded_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "MAX_BACKLOG", 3)
    job = make_job(overlap="queue", max_concurrency=1)
    make_execution(job=job)
    schedule = due_schedule(job, minutes=4.5)
    assert fire_due_schedules() == FireResult(schedules=1, fired=2, skipped=3)
    assert outcomes(schedule) == [("ready", None)] * 2 + [("skipped", "backlog")] * 3


def test_one_jobs_backlog_is_not_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "MAX_BACKLOG", 1)
    full, idle = make_job(), make_job()
    make_execution(job=full)
    assert fire_outcomes(due_schedule(full), due_schedule(idle)) == [[("skipped", "backlog")], [("ready", None)]]


def fire_outcomes(*schedules: Schedule) -> list[list[tuple[str, str | None]]]:
    fire_due_schedules()
    return [outcomes(schedule) for schedule in schedules]


@pytest.mark.parametrize("state", ["ready", "blocked", "running"])
def test_skip_records_what_it_skips(state: str) -> None:
    job = make_job(overlap="skip", max_concurrency=1)
    busy = make_execution(job=job, state=State.BLOCKED if state == "blocked" else State.READY)
    if state == "running":
        run_on(make_worker(), busy)
    schedule = due_schedule(job)
    assert fire_due_schedules() == FireResult(schedules=1, skipped=1)
    assert outcomes(schedule) == [("skipped", "overlap")]
    assert Execution.objects.get(schedule=schedule).ended_at is not None
    schedule.refresh_from_db()
    assert schedule.next_instant is not None
    assert schedule.next_instant > datetime.now(UTC), "a skipped instant is settled"


def test_skip_leaves_room_up_to_the_limit() -> None:
    job = make_job(overlap="skip", max_concurrency=3)
    make_execution(job=job)
    schedule = due_schedule(job, minutes=3.5)
    fire_due_schedules()
    assert outcomes(schedule) == [("ready", None)] * 2 + [("skipped", "overlap")] * 2


def test_skip_counts_over_all_schedules_of_the_job_in_one_batch() -> None:
    job = make_job(overlap="skip", max_concurrency=1)
    first, second = due_schedule(job), due_schedule(job)
    assert fire_due_schedules() == FireResult(schedules=2, fired=1, skipped=1)
    assert sorted(outcomes(first) + outcomes(second), key=str) == [("ready", None), ("skipped", "overlap")]


def test_what_ended_or_is_being_cancelled_is_not_busy() -> None:
    job = make_job(overlap="skip", max_concurrency=1)
    make_execution(job=job, state=State.MISSED)
    leaving = make_execution(job=job)
    run_on(make_worker(), leaving)
    Execution.objects.filter(id=leaving.id).update(cancel_requested_at=datetime.now(UTC))
    assert fire_outcomes(due_schedule(job)) == [[("ready", None)]]


def test_cancel_running_marks_what_runs_and_fires() -> None:
    job = make_job(overlap="cancel_running", max_concurrency=1)
    running = make_execution(job=job)
    run_on(make_worker(), running)
    assert fire_outcomes(due_schedule(job)) == [[("ready", None)]]
    running.refresh_from_db()
    assert running.state == "running", "its worker has to confirm"
    assert running.cancel_requested_at is not None


def test_cancel_running_ends_what_waits() -> None:
    job = make_job(overlap="cancel_running", max_concurrency=1)
    waiting = make_execution(job=job)
    assert fire_outcomes(due_schedule(job)) == [[("ready", None)]]
    waiting.refresh_from_db()
    assert (waiting.state, waiting.reason) == ("cancelled", "cancelled")


def test_cancel_running_takes_the_oldest_and_no_more_than_it_needs() -> None:
    job = make_job(overlap="cancel_running", max_concurrency=2)
    oldest, newer = make_execution(job=job), make_execution(job=job)
    fire_due_schedules_of(job)
    assert Execution.objects.get(id=oldest.id).state == "cancelled"
    assert Execution.objects.get(id=newer.id).state == "ready"


def test_cancel_running_makes_room_where_far_too_much_waits() -> None:
    job = make_job(overlap="cancel_running", max_concurrency=2)
    rows = [make_execution(job=job) for _ in range(4)]
    fire_due_schedules_of(job)
    assert [Execution.objects.get(id=e.id).state for e in rows] == ["cancelled"] * 3 + ["ready"]


def fire_due_schedules_of(job: Job) -> None:
    assert fire_outcomes(due_schedule(job)) == [[("ready", None)]]


def test_cancel_running_over_several_instants_of_a_batch_leaves_the_latest() -> None:
    job = make_job(overlap="cancel_running", max_concurrency=1)
    waiting = make_execution(job=job)
    schedule = due_schedule(job, minutes=2.5)
    assert fire_due_schedules() == FireResult(schedules=1, fired=1, skipped=2)
    assert outcomes(schedule) == [("skipped", "overlap")] * 2 + [("ready", None)]
    waiting.refresh_from_db()
    assert waiting.state == "cancelled"


def test_cancel_running_spares_other_jobs() -> None:
    other = make_execution()
    job = make_job(overlap="cancel_running", max_concurrency=1)
    make_execution(job=job)
    fire_due_schedules_of(job)
    other.refresh_from_db()
    assert other.state == "ready"


def test_missed_instants_take_no_room_and_cancel_nobody() -> None:
    job = make_job(overlap="cancel_running", max_concurrency=1)
    waiting = make_execution(job=job)
    schedule = due_schedule(job, minutes=2.5, catch_up="none")
    assert fire_due_schedules() == FireResult(schedules=1, missed=3)
    assert {state for state, _ in outcomes(schedule)} == {"missed"}
    waiting.refresh_from_db()
    assert waiting.state == "ready"
