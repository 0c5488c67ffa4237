"""A fixed delay fires again after every run, even if an edit, a pause or a lock coincides with its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from jobs.db import due_window
from jobs.definitions import lifecycle
from jobs.definitions.editing import edit_job
from jobs.domain.job_edit import JobEdit, ScheduleEdit
from jobs.domain.recurrence import Kind, Recurrence, next_delay_instant
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, RunReport
from jobs.execution import delays, transitions
from jobs.execution.attempts import finish_attempt
from jobs.execution.delays import ArmResult, arm_idle_delays
from jobs.execution.transitions import NewExecution
from jobs.models import Execution, Job, Schedule, Trigger
from jobs.verify.firings import audit_firings
from tests.support.barriers import at_once, beside
from tests.support.factories import make_job, make_worker, run_on
from tests.support.locks import locked
from tests.support.schedules import add_schedule

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


def running(kind: Kind) -> tuple[Schedule, AttemptFence]:
    """Create a schedule with a run under way."""
    now = datetime.now(UTC)
    job = make_job(max_concurrency=None)
    schedule = add_schedule(job, kind, "3600", created=now)
    if kind is Kind.DELAY:
        Schedule.objects.filter(id=schedule.id).update(next_instant=None, next_fire_at=None, settled_count=1)
    (execution_id,) = transitions.create_executions(
        [NewExecution(job.id, Trigger.SCHEDULE, schedule_id=schedule.id, scheduled_for=now)]
    )
    return schedule, run_on(make_worker(), Execution.objects.get(id=execution_id))


def make_delay(schedule: Schedule) -> None:
    edit_job(schedule.job_id, JobEdit(schedules=[ScheduleEdit(schedule.id, kind=Kind.DELAY, expression="3600")]))


def finish(fence: AttemptFence) -> None:
    finish_attempt(fence, RunReport(Reason.EXIT, exit_code=0))


def next_instant(schedule: Schedule) -> datetime | None:
    return Schedule.objects.values_list("next_instant", flat=True).get(id=schedule.id)


def end_of(schedule: Schedule) -> datetime:
    ended_at = Execution.objects.get(schedule=schedule).ended_at
    assert ended_at is not None
    return ended_at


def test_interval_that_becomes_a_delay_while_its_run_finishes_fires_again() -> None:
    """The edit holds the execution: the finish waits for it, and then sees a delay."""
    schedule, fence = running(Kind.EVERY)
    beside(lambda: make_delay(schedule), lambda: finish(fence))
    assert next_instant(schedule) == end_of(schedule) + HOUR
    assert arm_idle_delays() == ArmResult()


def test_delay_that_no_run_will_arm_is_found_by_the_audit_and_armed() -> None:
    schedule, fence = running(Kind.EVERY)
    finish(fence)
    # As after a finish that did not see that the schedule had become a delay.
    Schedule.objects.filter(id=schedule.id).update(kind=Kind.DELAY, next_instant=None, next_fire_at=None)
    now = datetime.now(UTC)
    audit = audit_firings(now - HOUR, now + HOUR, tolerance_seconds=0)
    assert (audit.unarmed, audit.clean) == (1, False), "the audit finds delays that nothing would arm"
    assert arm_idle_delays() == ArmResult(examined=1, armed=1)
    assert next_instant(schedule) == end_of(schedule) + HOUR
    assert audit_firings(now - HOUR, now + HOUR, tolerance_seconds=0).unarmed == 0
    assert arm_idle_delays() == ArmResult()


def test_sweep_leaves_a_delay_to_its_run() -> None:
    schedule, fence = running(Kind.DELAY)
    assert arm_idle_delays() == ArmResult(examined=1)
    with transaction.atomic():
        finish(fence)
        at_once([arm_idle_delays])
    assert next_instant(schedule) == end_of(schedule) + HOUR


def test_sweep_skips_paused_and_exhausted_delays() -> None:
    now = datetime.now(UTC)
    paused, fence = running(Kind.DELAY)
    lifecycle.pause_job(paused.job_id, note="")
    finish(fence)
    for limit in ({"max_count": 1}, {"ends_at": now + HOUR / 2}):
        schedule, fence = running(Kind.DELAY)
        Schedule.objects.filter(id=schedule.id).update(**limit)
        finish(fence)
    assert arm_idle_delays().armed == 0
    assert set(Schedule.objects.values_list("next_instant", flat=True)) == {None}
    assert audit_firings(now - HOUR, now + HOUR, tolerance_seconds=0).unarmed == 0


def test_sweep_does_not_write_to_exhausted_delays() -> None:
    for limit in ({"max_count": 1}, {"ends_at": datetime.now(UTC) + HOUR / 2}):
        schedule, fence = running(Kind.DELAY)
        Schedule.objects.filter(id=schedule.id).update(**limit)
        finish(fence)
    with CaptureQueriesContext(connection) as captured:
        assert arm_idle_delays() == ArmResult(examined=2)
    assert [query["sql"] for query in captured if "UPDATE" in query["sql"]] == [], "a row lock is a write"


def test_delay_paused_while_its_run_finishes_is_not_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, fence = running(Kind.DELAY)
    announced: list[object] = []

    def pausing(recurrence: Recurrence, at: datetime) -> datetime | None:
        Job.objects.filter(id=schedule.job_id).update(state="paused", paused_at=at)
        return next_delay_instant(recurrence, at)

    monkeypatch.setattr(delays, "next_delay_instant", pausing)
    monkeypatch.setattr(due_window, "announce_due", announced.append)
    finish(fence)
    assert (next_instant(schedule), announced) == (None, [])


def test_delay_that_never_ran_is_armed_unless_locked() -> None:
    now = datetime.now(UTC)
    job = make_job()
    free, busy = [add_schedule(job, Kind.DELAY, "3600", created=now - HOUR) for _ in range(2)]
    Schedule.objects.update(next_instant=None, next_fire_at=None)
    with locked(busy, no_key=True):
        assert arm_idle_delays().armed == 1
        armed_at = next_instant(free)
        assert armed_at is not None
        assert armed_at >= now
        assert next_instant(busy) is None
    assert arm_idle_delays().armed == 1
    assert next_instant(busy) is not None


def test_sweep_continues_where_the_last_one_stopped() -> None:
    first, _ = running(Kind.DELAY)
    second = add_schedule(make_job(), Kind.DELAY, "60")
    Schedule.objects.filter(id=second.id).update(next_instant=None, next_fire_at=None)
    swept = arm_idle_delays(limit=1)
    assert swept == ArmResult(examined=1, after=min(first.id, second.id))
    assert arm_idle_delays(limit=1, after=swept.after).armed == 1
