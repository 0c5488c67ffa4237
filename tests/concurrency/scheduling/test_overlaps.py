"""Concurrent beats that fire one job, and users who pause it, account for every instant once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from jobs.definitions import lifecycle
from jobs.domain.recurrence import instants_between
from jobs.execution import completion, transitions
from jobs.execution.transitions import NewExecution
from jobs.models import DroppedRange, Execution, Job, Schedule, Trigger
from jobs.scheduling import schedules
from jobs.scheduling.firing import fire_due_schedules
from tests.support.barriers import at_once
from tests.support.factories import make_job, make_schedule

pytestmark = pytest.mark.django_db(transaction=True)


def due(job: Job, **fields: object) -> Schedule:
    now = datetime.now(UTC)
    return make_schedule(job=job, expression="3600", starts_at=now, next_instant=now, **fields)


def beat() -> None:
    """Fire one schedule per batch, so that two beats fire schedules of one job at the same time."""
    while fire_due_schedules(limit=1).schedules:
        pass


@pytest.mark.parametrize("limit", [1, 3])
def test_schedules_of_one_job_on_several_beats_never_pass_a_skip_limit(limit: int) -> None:
    jobs = [make_job(overlap="skip", max_concurrency=limit) for _ in range(10)]
    for job in jobs:
        for _ in range(limit + 3):
            due(job)

    at_once([beat] * 4)

    for job in jobs:
        states = Counter(Execution.objects.filter(job=job).values_list("state", flat=True))
        assert states == {"ready": limit, "skipped": 3}


def test_schedules_of_one_job_on_several_beats_leave_one_under_cancel_running() -> None:
    jobs = [make_job(overlap="cancel_running", max_concurrency=1) for _ in range(10)]
    for job in jobs:
        for _ in range(4):
            due(job)

    at_once([beat] * 4)

    for job in jobs:
        states = Counter(Execution.objects.filter(job=job).values_list("state", flat=True))
        assert states["ready"] == 1
        assert states.total() == 4


def frequent(job: Job, **fields: object) -> Schedule:
    start = datetime.now(UTC) - timedelta(seconds=1)
    schedule = make_schedule(job=job, expression="0.01", starts_at=start, next_instant=start, catch_up="all", **fields)
    schedules.begin_versions([schedule], start - timedelta(microseconds=1))
    return schedule


@pytest.mark.parametrize("overlap", ["queue", "skip", "cancel_running"])
@pytest.mark.parametrize("jitter", [0, 0.05])
def test_a_pause_among_firing_beats_loses_and_doubles_no_instant(overlap: str, jitter: float) -> None:
    job = make_job(overlap=overlap, max_concurrency=2)
    rows = [frequent(job, jitter_seconds=jitter) for _ in range(3)]
    deadline = datetime.now(UTC) + timedelta(seconds=1.5)

    def beats() -> None:
        while datetime.now(UTC) < deadline:
            fire_due_schedules(limit=2)

    def user() -> None:
        while datetime.now(UTC) < deadline:
            lifecycle.pause_job(job.id, note="")
            lifecycle.resume_job(job.id)

    at_once([beats, beats, user])
    lifecycle.cancel_job(job.id, by="test")

    for schedule in rows:
        history = list(schedule.history.order_by("number"))
        assert len(history) > 2, "the job was paused in between"
        assert [v.to_at for v in history[:-1]] == [v.from_at for v in history[1:]]
        end = history[-1].to_at
        assert end is not None
        expected = list(instants_between(schedules.recurrence_of(schedule), history[0].from_at, end))
        fired = list(Execution.objects.filter(schedule=schedule).values_list("scheduled_for", flat=True))
        in_force = [
            instant for v in history if not v.paused and v.to_at
            for instant in instants_between(schedules.recurrence_of(v), v.from_at, v.to_at)
        ]  # fmt: skip
        late = sum(DroppedRange.objects.filter(schedule=schedule, reason="catch_up").values_list("count", flat=True))
        paused = sum(DroppedRange.objects.filter(schedule=schedule, reason="paused").values_list("count", flat=True))
        assert late == 0
        assert sorted(fired) == in_force
        assert len(fired) + paused == len(expected)


def delayed(job: Job) -> tuple[Schedule, list[Execution]]:
    """Create a fixed delay with a run under way."""
    start = datetime.now(UTC)
    schedule = make_schedule(
        job=job, kind="delay", expression="3600", starts_at=start, next_instant=None, next_fire_at=None
    )
    schedules.begin_versions([schedule], start)
    ids = transitions.create_executions(
        [NewExecution(job.id, Trigger.SCHEDULE, schedule_id=schedule.id, scheduled_for=start)]
    )
    return schedule, list(Execution.objects.filter(id__in=ids))


def finish(execution: Execution) -> Callable[[], None]:
    def cancel() -> None:
        with transaction.atomic():
            completion.on_finished(transitions.cancel([execution.id], by="test"))

    return cancel


def test_run_that_finishes_during_a_pause_arms_nothing() -> None:
    for _ in range(20):
        job = make_job()
        schedule, (execution,) = delayed(job)
        at_once([finish(execution), lambda job=job: lifecycle.pause_job(job.id, note="")])  # type: ignore[misc]
        schedule.refresh_from_db()
        assert schedule.next_instant is None


def test_run_that_finishes_during_a_resume_arms_its_delay() -> None:
    for _ in range(20):
        job = make_job()
        schedule, (execution,) = delayed(job)
        lifecycle.pause_job(job.id, note="")
        at_once([finish(execution), lambda job=job: lifecycle.resume_job(job.id)])  # type: ignore[misc]
        schedule.refresh_from_db()
        assert schedule.next_instant is not None, "the later of the two armed it"


def test_run_that_finishes_during_a_cancellation_does_not_deadlock() -> None:
    for _ in range(20):
        job = make_job()
        schedule, (execution,) = delayed(job)
        at_once([finish(execution), lambda job=job: lifecycle.cancel_job(job.id, by="test")])  # type: ignore[misc]
        schedule.refresh_from_db()
        execution.refresh_from_db()
        assert (execution.state, schedule.next_instant) == ("cancelled", None)
