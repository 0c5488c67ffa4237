"""A backfill creates the execution of each past instant once, in order, no faster than the job runs them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.definitions import lifecycle
from jobs.domain import limits
from jobs.domain.errors import Conflict, InvalidInput
from jobs.domain.recurrence import Kind
from jobs.models import Backfill, Execution, Job, Schedule
from jobs.scheduling import backfill as backfilling
from jobs.scheduling.backfill import BackfillResult, advance_backfills, cancel_backfill, request_backfill
from jobs.scheduling.firing import fire_due_schedules
from tests.support.factories import make_job
from tests.support.schedules import add_schedule

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
# A past range of three hours, on the hour.
START = datetime(2026, 3, 2, 10, tzinfo=UTC)
END = START + 3 * HOUR


def scheduled_job(*expressions: str, **spec: Any) -> Job:
    """Create a job with cron schedules that begin now."""
    job, now = make_job(), datetime.now(UTC)
    for expression in expressions or ["0 * * * *"]:
        add_schedule(job, Kind.CRON, expression, created=now, **spec)
    return job


def requested(job: Job, from_at: datetime = START, to_at: datetime = END) -> Backfill:
    return request_backfill(job.id, from_at=from_at, to_at=to_at, by="ada")


def instants(job: Job) -> list[datetime]:
    return list(Execution.objects.filter(job=job).order_by("scheduled_for").values_list("scheduled_for", flat=True))


def test_request_creates_no_executions_and_returns_their_expected_count() -> None:
    job = scheduled_job()
    backfill = requested(job)
    assert (backfill.state, backfill.expected_count, backfill.created_count) == ("pending", 4, 0)
    assert backfill.requested_by == "ada"
    assert instants(job) == []


def test_step_creates_executions_for_the_inclusive_range() -> None:
    job = scheduled_job()
    backfill = requested(job)
    assert advance_backfills() == BackfillResult(backfills=1, created=4, ended=1)
    assert instants(job) == [START + n * HOUR for n in range(4)]
    assert set(Execution.objects.values_list("state", "trigger")) == {("ready", "backfill")}
    backfill.refresh_from_db()
    assert (backfill.state, backfill.created_count) == ("done", 4)
    assert backfill.ended_at is not None
    assert advance_backfills() == BackfillResult()


def test_backfill_does_not_change_the_schedules() -> None:
    job = scheduled_job(max_count=2)
    before = Schedule.objects.values().get()
    requested(job)
    advance_backfills()
    assert Schedule.objects.values().get() == before


def test_catch_up_policies_do_not_apply() -> None:
    job = make_job()
    add_schedule(job, Kind.CRON, "0 * * * *", created=START, catch_up_window_seconds=1)
    Schedule.objects.update(next_instant=None, next_fire_at=None)
    requested(job, START + MINUTE, END)
    advance_backfills()
    assert list(Execution.objects.values_list("state", flat=True)) == ["ready"] * 3


def test_overlapping_backfill_creates_only_missing_executions() -> None:
    job = scheduled_job()
    requested(job)
    advance_backfills()
    again = requested(job, START - HOUR, END + HOUR)
    assert again.expected_count == 2
    assert advance_backfills().created == 2
    assert instants(job) == [START + n * HOUR for n in range(-1, 5)]


def test_fired_and_missed_instants_keep_their_executions() -> None:
    job, now = make_job(), datetime.now(UTC)
    schedule = add_schedule(job, Kind.EVERY, "60", created=now - 5.5 * MINUTE)
    fire_due_schedules()
    before = list(Execution.objects.order_by("id").values())
    backfill = requested(job, schedule.starts_at, now)
    # The grid of an interval extends before its creation, which set its anchor.
    assert backfill.expected_count == 1
    advance_backfills()
    assert list(Execution.objects.filter(trigger="schedule").order_by("id").values()) == before
    assert instants(job) == [schedule.starts_at + n * MINUTE for n in range(6)]


def test_interval_keeps_its_grid_before_its_creation() -> None:
    job, now = make_job(), datetime.now(UTC)
    schedule = add_schedule(job, Kind.EVERY, "3600", created=now)
    requested(job, now - 2.5 * HOUR, now - 0.5 * HOUR)
    advance_backfills()
    assert instants(job) == [schedule.starts_at - n * HOUR for n in (2, 1)]


def test_explicit_start_limits_the_backfill() -> None:
    job = scheduled_job(starts_at=START + 1.5 * HOUR)
    assert requested(job).expected_count == 2
    advance_backfills()
    assert instants(job) == [START + 2 * HOUR, END]


def test_excluded_dates_are_not_backfilled() -> None:
    job = scheduled_job("0 12 * * *", excluded_dates=[START.date()])
    requested(job, START - DAY, START + DAY)
    advance_backfills()
    assert [instant.date() for instant in instants(job)] == [(START - DAY).date()]


def test_schedules_that_share_instants_get_one_execution_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKFILL_BATCH_INSTANTS", 3)
    monkeypatch.setattr(limits, "BACKFILL_MAX_UNFINISHED_EXECUTIONS", 5)
    job = scheduled_job("0 * * * *", "0 * * * *", "0 10,12 * * *")
    backfill = requested(job)
    assert backfill.expected_count == 10
    for _ in range(20):
        advance_backfills()
        Execution.objects.filter(state="ready").update(state="succeeded", ended_at=datetime.now(UTC))
    backfill.refresh_from_db()
    assert (backfill.state, backfill.created_count) == ("done", 10)
    assert [Execution.objects.filter(schedule=s).count() for s in job.schedules.order_by("id")] == [4, 4, 2]


def test_step_is_bounded_and_the_next_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKFILL_BATCH_INSTANTS", 3)
    job = scheduled_job()
    backfill = requested(job)
    assert advance_backfills() == BackfillResult(backfills=1, created=3)
    backfill.refresh_from_db()
    assert (backfill.state, backfill.created_count, backfill.cursor) == ("running", 3, START + 2 * HOUR)
    assert advance_backfills() == BackfillResult(backfills=1, created=1, ended=1)


def test_backfill_waits_while_the_job_has_too_many_unfinished_executions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKFILL_MAX_UNFINISHED_EXECUTIONS", 2)
    job = scheduled_job()
    requested(job)
    assert advance_backfills().created == 2
    assert advance_backfills().created == 0
    first = Execution.objects.order_by("scheduled_for")[0]
    lifecycle.cancel_execution(first.id, by="test")
    assert advance_backfills().created == 1
    assert Execution.objects.filter(state="ready").count() == 2
    assert instants(job) == [START + n * HOUR for n in range(3)], "in order"


def test_full_job_does_not_delay_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKFILL_MAX_UNFINISHED_EXECUTIONS", 1)
    full, idle = scheduled_job(), scheduled_job()
    lifecycle.execute_job(full.id)
    requested(full)
    requested(idle)
    advance_backfills()
    assert (len(instants(full)), len(instants(idle))) == (1, 1)


def test_backfills_that_cannot_proceed_do_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfilling, "_MAX_EXAMINED_BACKFILLS", 5)
    monkeypatch.setattr(limits, "BACKFILL_MAX_UNFINISHED_EXECUTIONS", 4)
    paused, full, idle = scheduled_job(), scheduled_job(), scheduled_job()
    for _ in range(4):
        lifecycle.execute_job(full.id)
    for job in (paused, full):
        for _ in range(6):
            requested(job)
    lifecycle.pause_job(paused.id, note="")
    waiting = requested(idle)
    for _ in range(4):
        advance_backfills()
    waiting.refresh_from_db()
    assert waiting.state == "done", "all thirteen have had their turn"
    lifecycle.resume_job(paused.id)
    for _ in range(4):
        advance_backfills()
    assert instants(paused) == [START + n * HOUR for n in range(4)]


def test_large_backfill_takes_turns_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKFILL_BATCH_INSTANTS", 10)
    large, small = scheduled_job("* * * * *"), scheduled_job()
    requested(large, START, START + 50 * MINUTE)
    requested(small)
    for _ in range(2):
        advance_backfills()
    assert len(instants(small)) == 4


def test_large_backfills_of_busy_jobs_do_not_block_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "BACKFILL_BATCH_INSTANTS", 40)
    monkeypatch.setattr(limits, "BACKFILL_MAX_UNFINISHED_EXECUTIONS", 4)
    busy = [scheduled_job("* * * * *") for _ in range(3)]
    for job in busy:
        for _ in range(3):
            lifecycle.execute_job(job.id)
        requested(job, START, START + 50 * MINUTE)
    last = scheduled_job()
    requested(last)
    advance_backfills()
    assert [len(instants(job)) - 3 for job in busy] == [1, 1, 1]
    assert len(instants(last)) == 4


def test_large_backfill_without_missing_executions_does_not_block_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "BACKFILL_BATCH_INSTANTS", 20)
    done, other = scheduled_job("* * * * *"), scheduled_job()
    requested(done, START, START + 50 * MINUTE)
    for _ in range(4):
        advance_backfills()
    requested(done, START, START + 50 * MINUTE)
    requested(other)
    advance_backfills()
    assert len(instants(other)) == 4


def test_new_backfills_queue_behind_waiting_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfilling, "_MAX_ADVANCED_BACKFILLS", 1)
    monkeypatch.setattr(limits, "BACKFILL_BATCH_INSTANTS", 1)
    first, newer = scheduled_job(), [scheduled_job() for _ in range(4)]
    requested(first)
    for job in newer:
        advance_backfills()
        requested(job)
    advance_backfills()
    assert len(instants(first)) > 2, "newer backfills do not all go first"
    assert instants(newer[0])


def test_failing_backfill_does_not_block_others() -> None:
    broken, healthy = scheduled_job(), scheduled_job()
    requested(broken)
    requested(healthy)
    Schedule.objects.filter(job=broken).update(timezone="Mars/Olympus")
    advance_backfills()
    assert (len(instants(broken)), len(instants(healthy))) == (0, 4)


def test_cancelled_backfill_creates_no_more_executions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKFILL_BATCH_INSTANTS", 1)
    job = scheduled_job()
    backfill = requested(job)
    advance_backfills()
    cancel_backfill(backfill.id)
    backfill.refresh_from_db()
    ended_at = backfill.ended_at
    assert (backfill.state, ended_at is None) == ("cancelled", False)
    assert advance_backfills() == BackfillResult()
    assert list(Execution.objects.values_list("state", flat=True)) == ["ready"], "existing executions continue"
    cancel_backfill(backfill.id)
    backfill.refresh_from_db()
    assert backfill.ended_at == ended_at


def test_finished_backfill_cannot_be_cancelled() -> None:
    backfill = requested(scheduled_job())
    advance_backfills()
    with pytest.raises(Conflict):
        cancel_backfill(backfill.id)


def test_cancelling_the_job_cancels_its_backfills() -> None:
    job = scheduled_job()
    backfill = requested(job)
    lifecycle.cancel_job(job.id, by="test")
    backfill.refresh_from_db()
    assert backfill.state == "cancelled"
    with pytest.raises(Conflict):
        requested(job)


def test_paused_job_is_backfilled_after_it_is_resumed() -> None:
    job = scheduled_job()
    lifecycle.pause_job(job.id, note="")
    requested(job)
    assert advance_backfills() == BackfillResult()
    lifecycle.resume_job(job.id)
    assert advance_backfills().created == 4


def test_backfill_of_an_empty_range_finishes_at_once() -> None:
    backfill = requested(scheduled_job(), START + MINUTE, START + 2 * MINUTE)
    assert backfill.expected_count == 0
    assert advance_backfills() == BackfillResult(backfills=1, ended=1)


@pytest.mark.parametrize(
    ("field", "from_at", "to_at"),
    [("from", END, START), ("from", START, START), ("to", START, datetime(2090, 1, 1, tzinfo=UTC))],
)
def test_invalid_ranges_are_refused(field: str, from_at: datetime, to_at: datetime) -> None:
    with pytest.raises(InvalidInput) as refused:
        requested(scheduled_job(), from_at, to_at)
    assert refused.value.field == field
    assert not Backfill.objects.exists()


def test_range_with_too_many_instants_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BACKFILL_INSTANTS", 3)
    with pytest.raises(InvalidInput):
        requested(scheduled_job())
    assert requested(scheduled_job(), START, END - MINUTE).expected_count == 3


def test_job_without_instants_cannot_be_backfilled() -> None:
    delayed = make_job()
    add_schedule(delayed, Kind.DELAY, "60")
    for job in (make_job(), delayed):
        with pytest.raises(Conflict):
            requested(job)
