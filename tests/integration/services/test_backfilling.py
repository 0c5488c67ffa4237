"""A backfill creates each past instant's execution once, in order, no faster than the job works, until it is over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs import conf
from jobs.errors import Conflict, InvalidInput
from jobs.models import Backfill, Execution, Job, Schedule
from jobs.recurrence import Kind
from jobs.services import commands, schedules
from jobs.services.backfilling import AdvanceResult, advance_backfills, cancel_backfill, request_backfill
from jobs.services.firing import fire_due_schedules
from jobs.services.job_spec import ScheduleSpec
from tests.factories import make_job

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
# A range of three hours, somewhen in the past, on the hour.
START = datetime(2026, 3, 2, 10, tzinfo=UTC)
END = START + 3 * HOUR


def scheduled_job(*expressions: str, **spec: Any) -> Job:
    """Crons that were written just now."""
    job, now = make_job(), datetime.now(UTC)
    planned = [
        schedules.plan_schedule(n, ScheduleSpec(Kind.CRON, expression, **spec), now)
        for n, expression in enumerate(expressions or ["0 * * * *"])
    ]
    schedules.create_schedules(job, planned, now)
    return job


def requested(job: Job, from_at: datetime = START, to_at: datetime = END) -> Backfill:
    return request_backfill(job.id, from_at=from_at, to_at=to_at, by="somebody")


def instants(job: Job) -> list[datetime]:
    return list(Execution.objects.filter(job=job).order_by("scheduled_for").values_list("scheduled_for", flat=True))


def test_a_request_creates_nothing_yet_and_says_what_is_to_come() -> None:
    job = scheduled_job()
    backfill = requested(job)
    assert (backfill.state, backfill.expected_count, backfill.created_count) == ("pending", 4, 0)
    assert backfill.requested_by == "somebody"
    assert instants(job) == []


def test_a_step_creates_the_executions_of_the_range_with_both_ends() -> None:
    job = scheduled_job()
    backfill = requested(job)
    assert advance_backfills() == AdvanceResult(backfills=1, created=4, ended=1)
    assert instants(job) == [START + n * HOUR for n in range(4)]
    assert set(Execution.objects.values_list("state", "trigger")) == {("ready", "backfill")}
    backfill.refresh_from_db()
    assert (backfill.state, backfill.created_count) == ("done", 4)
    assert backfill.ended_at is not None
    assert advance_backfills() == AdvanceResult()


def test_the_schedules_go_on_as_if_nothing_had_happened() -> None:
    job = scheduled_job(max_count=2)
    before = Schedule.objects.values().get()
    requested(job)
    advance_backfills()
    assert Schedule.objects.values().get() == before


def test_catch_up_policies_do_not_apply() -> None:
    job = make_job()
    planned = schedules.plan_schedule(0, ScheduleSpec(Kind.CRON, "0 * * * *", catch_up_window_seconds=1), START)
    schedules.create_schedules(job, [planned], START)
    Schedule.objects.update(next_instant=None, next_fire_at=None)
    requested(job, START + MINUTE, END)
    advance_backfills()
    assert list(Execution.objects.values_list("state", flat=True)) == ["ready"] * 3


def test_the_same_range_again_creates_nothing() -> None:
    job = scheduled_job()
    requested(job)
    advance_backfills()
    again = requested(job, START - HOUR, END + HOUR)
    assert again.expected_count == 2
    assert advance_backfills().created == 2
    assert instants(job) == [START + n * HOUR for n in range(-1, 5)]


def test_what_fired_or_was_missed_already_keeps_its_execution() -> None:
    job, now = make_job(), datetime.now(UTC)
    planned = schedules.plan_schedule(0, ScheduleSpec(Kind.EVERY, "60"), now - 5.5 * MINUTE)
    schedules.create_schedules(job, [planned], now - 5.5 * MINUTE)
    fire_due_schedules()
    before = list(Execution.objects.order_by("id").values())
    backfill = requested(job, planned.starts_at, now)
    # The grid of an interval reaches back: its anchor was chosen by the moment of its creation.
    assert backfill.expected_count == 1
    advance_backfills()
    assert list(Execution.objects.filter(trigger="schedule").order_by("id").values()) == before
    assert instants(job) == [planned.starts_at + n * MINUTE for n in range(6)]


def test_an_interval_keeps_its_grid_before_its_creation() -> None:
    job, now = make_job(), datetime.now(UTC)
    planned = schedules.plan_schedule(0, ScheduleSpec(Kind.EVERY, "3600"), now)
    schedules.create_schedules(job, [planned], now)
    requested(job, now - 2.5 * HOUR, now - 0.5 * HOUR)
    advance_backfills()
    assert instants(job) == [planned.starts_at - n * HOUR for n in (2, 1)]


def test_a_start_that_was_asked_for_is_kept() -> None:
    job = scheduled_job(starts_at=START + 1.5 * HOUR)
    assert requested(job).expected_count == 2
    advance_backfills()
    assert instants(job) == [START + 2 * HOUR, END]


def test_excluded_dates_are_kept() -> None:
    job = scheduled_job("0 12 * * *", excluded_dates=[START.date()])
    requested(job, START - DAY, START + DAY)
    advance_backfills()
    assert [instant.date() for instant in instants(job)] == [(START - DAY).date()]


def test_schedules_that_share_instants_have_one_execution_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "BACKFILL_BATCH_INSTANTS", 3)
    monkeypatch.setattr(conf, "BACKFILL_MAX_WAITING", 5)
    job = scheduled_job("0 * * * *", "0 * * * *", "0 10,12 * * *")
    backfill = requested(job)
    assert backfill.expected_count == 10
    for _ in range(20):
        advance_backfills()
        Execution.objects.filter(state="ready").update(state="succeeded", ended_at=datetime.now(UTC))
    backfill.refresh_from_db()
    assert (backfill.state, backfill.created_count) == ("done", 10)
    assert [Execution.objects.filter(schedule=s).count() for s in job.schedules.order_by("id")] == [4, 4, 2]


def test_a_step_is_bounded_and_the_next_goes_on_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "BACKFILL_BATCH_INSTANTS", 3)
    job = scheduled_job()
    backfill = requested(job)
    assert advance_backfills() == AdvanceResult(backfills=1, created=3)
    backfill.refresh_from_db()
    assert (backfill.state, backfill.created_count, backfill.cursor) == ("running", 3, START + 2 * HOUR)
    assert advance_backfills() == AdvanceResult(backfills=1, created=1, ended=1)


def test_it_waits_while_the_job_has_enough_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "BACKFILL_MAX_WAITING", 2)
    job = scheduled_job()
    requested(job)
    assert advance_backfills().created == 2
    assert advance_backfills().created == 0
    first = Execution.objects.order_by("scheduled_for")[0]
    commands.cancel_execution(first.id, by="test")
    assert advance_backfills().created == 1
    assert Execution.objects.filter(state="ready").count() == 2
    assert instants(job) == [START + n * HOUR for n in range(3)], "in order"


def test_a_full_job_does_not_hold_up_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "BACKFILL_MAX_WAITING", 1)
    full, idle = scheduled_job(), scheduled_job()
    commands.execute_job(full.id)
    requested(full)
    requested(idle)
    advance_backfills()
    assert (len(instants(full)), len(instants(idle))) == (1, 1)


def test_cancelled_it_creates_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "BACKFILL_BATCH_INSTANTS", 1)
    job = scheduled_job()
    backfill = requested(job)
    advance_backfills()
    cancel_backfill(backfill.id)
    backfill.refresh_from_db()
    ended_at = backfill.ended_at
    assert (backfill.state, ended_at is None) == ("cancelled", False)
    assert advance_backfills() == AdvanceResult()
    assert list(Execution.objects.values_list("state", flat=True)) == ["ready"], "what it has created runs on"
    cancel_backfill(backfill.id)
    backfill.refresh_from_db()
    assert backfill.ended_at == ended_at


def test_what_is_done_cannot_be_cancelled() -> None:
    backfill = requested(scheduled_job())
    advance_backfills()
    with pytest.raises(Conflict):
        cancel_backfill(backfill.id)


def test_cancelling_the_job_ends_its_backfills() -> None:
    job = scheduled_job()
    backfill = requested(job)
    commands.cancel_job(job.id, by="test")
    backfill.refresh_from_db()
    assert backfill.state == "cancelled"
    with pytest.raises(Conflict):
        requested(job)


def test_a_paused_job_is_backfilled_when_it_is_resumed() -> None:
    job = scheduled_job()
    commands.pause_job(job.id, note="")
    requested(job)
    assert advance_backfills() == AdvanceResult()
    commands.resume_job(job.id)
    assert advance_backfills().created == 4


def test_an_empty_range_is_done_at_once() -> None:
    backfill = requested(scheduled_job(), START + MINUTE, START + 2 * MINUTE)
    assert backfill.expected_count == 0
    assert advance_backfills() == AdvanceResult(backfills=1, ended=1)


@pytest.mark.parametrize(
    ("field", "from_at", "to_at"),
    [("from", END, START), ("from", START, START), ("to", START, datetime(2090, 1, 1, tzinfo=UTC))],
)
def test_ranges_that_make_no_sense_are_refused(field: str, from_at: datetime, to_at: datetime) -> None:
    with pytest.raises(InvalidInput) as refused:
        requested(scheduled_job(), from_at, to_at)
    assert refused.value.field == field
    assert not Backfill.objects.exists()


def test_a_range_with_too_many_instants_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "MAX_BACKFILL_INSTANTS", 3)
    with pytest.raises(InvalidInput):
        requested(scheduled_job())
    assert requested(scheduled_job(), START, END - MINUTE).expected_count == 3


def test_a_job_without_instants_of_its_own_is_refused() -> None:
    delayed, now = make_job(), datetime.now(UTC)
    planned = schedules.plan_schedule(0, ScheduleSpec(Kind.DELAY, "60"), now)
    schedules.create_schedules(delayed, [planned], now)
    for job in (make_job(), delayed):
        with pytest.raises(Conflict):
            requested(job)
