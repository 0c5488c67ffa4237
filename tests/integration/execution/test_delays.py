"""A fixed delay fires at once and again that long after each run finishes; never two at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from pytest_django import DjangoCaptureOnCommitCallbacks

from jobs.db.wakeups import WakeupListener
from jobs.definitions import lifecycle
from jobs.domain.job_spec import ScheduleSpec
from jobs.domain.recurrence import CatchUp, Kind
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import RunReport
from jobs.execution import attempts
from jobs.execution.deadlines import expire_overdue
from jobs.fleet.reaping import reap_lost_workers
from jobs.models import Execution, Schedule, Worker
from jobs.scheduling import schedules
from jobs.scheduling.firing import FireResult, fire_due_schedules
from scheduler_project.localstack.engines.standalone import Engines
from tests.support.factories import make_job, make_worker, run_on, stamp_reaping

pytestmark = pytest.mark.django_db

DELAY = timedelta(seconds=600)
MICROSECOND = timedelta(microseconds=1)


def delayed(
    *, job: dict[str, Any] | None = None, ago: timedelta = timedelta(), catch_up: str = "latest", **spec: Any
) -> Schedule:
    created = datetime.now(UTC) - ago
    planned = schedules.prepare_schedule(
        0, ScheduleSpec(Kind.DELAY, "600", catch_up=CatchUp(catch_up), **spec), created
    )
    schedules.create_schedules(make_job(**(job or {})), [planned], created)
    return planned


def fire(schedule: Schedule) -> Execution:
    """Return its only unfinished execution."""
    assert fire_due_schedules().fired == 1
    schedule.refresh_from_db()
    assert schedule.next_instant is None, "the next instant is unknown until that run finishes"
    return Execution.objects.get(schedule=schedule, ended_at__isnull=True)


def succeed(execution: Execution, exit_code: int = 0) -> None:
    hold = run_on(make_worker(), execution)
    attempts.finish_attempt(hold, RunReport(Reason.EXIT, exit_code=exit_code))


def assert_armed_after(schedule: Schedule, execution: Execution, state: str) -> None:
    execution.refresh_from_db()
    schedule.refresh_from_db()
    assert execution.state == state
    assert execution.ended_at is not None
    assert schedule.next_instant == schedule.next_fire_at == execution.ended_at + DELAY


def test_first_run_is_due_at_once() -> None:
    schedule = delayed()
    assert schedule.next_instant == schedule.starts_at
    execution = fire(schedule)
    assert (execution.state, execution.scheduled_for) == ("ready", schedule.starts_at)
    version = schedule.history.get()
    assert version.from_at < execution.scheduled_for, "its first instant is in the history's interval"


def test_success_rearms_the_delay() -> None:
    schedule = delayed()
    execution = fire(schedule)
    succeed(execution)
    assert_armed_after(schedule, execution, "succeeded")


def test_beat_is_woken_for_the_next_instant(
    engines: Engines, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    execution = fire(delayed())
    listener = WakeupListener(settings.PUNCTUAL_REDIS_URL)
    listener.wait(0.01)
    with django_capture_on_commit_callbacks(execute=True):
        succeed(execution)
    assert listener.wait(20)
    listener.close()
    listener._redis.close()


def test_failure_rearms_the_delay() -> None:
    schedule = delayed()
    execution = fire(schedule)
    succeed(execution, exit_code=3)
    assert_armed_after(schedule, execution, "failed")


def test_retry_does_not_rearm_the_delay() -> None:
    schedule = delayed(job={"retry": {"max_attempts": 2}})
    execution = fire(schedule)
    succeed(execution, exit_code=3)
    execution.refresh_from_db()
    schedule.refresh_from_db()
    assert (execution.state, schedule.next_instant) == ("backing_off", None)


def test_cancelling_the_run_rearms_the_delay() -> None:
    schedule = delayed()
    execution = fire(schedule)
    lifecycle.cancel_execution(execution.id, by="test")
    assert_armed_after(schedule, execution, "cancelled")


def test_expiry_rearms_the_delay() -> None:
    schedule = delayed()
    execution = fire(schedule)
    Execution.objects.update(deadline_at=datetime.now(UTC) - timedelta(seconds=1))
    expire_overdue()
    assert_armed_after(schedule, execution, "timed_out")


def test_losing_the_run_for_good_rearms_the_delay() -> None:
    schedule = delayed(job={"delivery": "at_most_once"})
    execution = fire(schedule)
    worker = make_worker()
    run_on(worker, execution)
    Worker.objects.filter(id=worker.worker_id).update(lease_until=datetime.now(UTC) - timedelta(hours=1))
    stamp_reaping()
    reap_lost_workers()
    assert_armed_after(schedule, execution, "failed")


def test_missed_run_rearms_the_delay() -> None:
    schedule = delayed(ago=timedelta(hours=1), catch_up="none")
    assert fire_due_schedules() == FireResult(schedules=1, missed=1)
    schedule.refresh_from_db()
    assert schedule.next_instant is not None
    assert timedelta() <= datetime.now(UTC) + DELAY - schedule.next_instant < timedelta(seconds=30)


def test_missed_run_counts_towards_max_count() -> None:
    schedule = delayed(ago=timedelta(hours=1), catch_up="none", max_count=1)
    fire_due_schedules()
    schedule.refresh_from_db()
    assert (schedule.next_instant, schedule.settled_count) == (None, 1)


def test_max_count_stops_the_delay() -> None:
    schedule = delayed(max_count=2)
    for _ in range(2):
        succeed(fire(schedule))
        Schedule.objects.filter(next_instant__isnull=False).update(
            next_instant=datetime.now(UTC), next_fire_at=datetime.now(UTC)
        )
    schedule.refresh_from_db()
    assert (schedule.next_instant, schedule.settled_count) == (None, 2)
    assert Execution.objects.count() == 2


def test_ends_at_stops_the_delay() -> None:
    schedule = delayed(ends_at=datetime.now(UTC) + DELAY / 2)
    succeed(fire(schedule))
    schedule.refresh_from_db()
    assert schedule.next_instant is None


@pytest.mark.parametrize("overlap", ["skip", "cancel_running"])
def test_overlap_policy_does_not_break_the_chain(overlap: str) -> None:
    schedule = delayed(job={"overlap": overlap, "max_concurrency": 1})
    lifecycle.execute_job(schedule.job_id)
    assert fire(schedule).state == "ready"


def test_paused_delay_is_not_armed_and_starts_again_on_resume() -> None:
    schedule = delayed()
    execution = fire(schedule)
    lifecycle.pause_job(schedule.job_id, note="")
    succeed(execution)
    schedule.refresh_from_db()
    assert schedule.next_instant is None
    lifecycle.resume_job(schedule.job_id)
    schedule.refresh_from_db()
    versions = list(schedule.history.order_by("number"))
    assert [v.paused for v in versions] == [False, True, False]
    assert [v.to_at for v in versions] == [v.from_at for v in versions[1:]] + [None]
    assert schedule.next_instant == versions[-1].from_at + MICROSECOND, "at once, and in the current version"
    assert fire(schedule).state == "ready"


def test_delay_resumed_during_a_run_waits_for_that_run() -> None:
    schedule = delayed()
    execution = fire(schedule)
    lifecycle.pause_job(schedule.job_id, note="")
    lifecycle.resume_job(schedule.job_id)
    schedule.refresh_from_db()
    assert schedule.next_instant is None, "otherwise two chains of runs would continue for ever"
    assert schedule.history.filter(to_at__isnull=True, paused=False).exists()
    succeed(execution)
    assert_armed_after(schedule, execution, "succeeded")


def test_delay_resumed_after_ends_at_stays_finished() -> None:
    schedule = delayed(ends_at=datetime.now(UTC) + DELAY)
    execution = fire(schedule)
    lifecycle.pause_job(schedule.job_id, note="")
    succeed(execution)
    Schedule.objects.update(ends_at=datetime.now(UTC) - timedelta(seconds=1))
    lifecycle.resume_job(schedule.job_id)
    schedule.refresh_from_db()
    assert schedule.next_instant is None


def test_delay_of_a_cancelled_job_is_not_armed() -> None:
    schedule = delayed()
    execution = fire(schedule)
    hold = run_on(make_worker(), execution)
    lifecycle.cancel_job(schedule.job_id, by="test")
    attempts.finish_attempt(hold, RunReport(Reason.CANCELLED))
    execution.refresh_from_db()
    schedule.refresh_from_db()
    assert (execution.state, schedule.next_instant) == ("cancelled", None)
