"""Beats that fire schedules of one job at once, and people who pause it meanwhile, agree on every instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from jobs.models import DroppedRange, Execution, Job, Schedule, Trigger
from jobs.recurrence import instants_between
from jobs.services import commands, endings, schedules, transitions
from jobs.services.firing import fire_due_schedules
from jobs.services.transitions import NewExecution
from tests.concurrency.connections import at_once
from tests.factories import make_job, make_schedule

pytestmark = pytest.mark.django_db(transaction=True)


def due(job: Job, **fields: object) -> Schedule:
    now = datetime.now(UTC)
    return make_schedule(job=job, expression="3600", starts_at=now, next_instant=now, **fields)


def beat() -> None:
    """Takes one schedule at a time, so that two beats have schedules of one job in their hands at once."""
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


def often(job: Job, **fields: object) -> Schedule:
    start = datetime.now(UTC) - timedelta(seconds=1)
    schedule = make_schedule(job=job, expression="0.01", starts_at=start, next_instant=start, catch_up="all", **fields)
    schedules.begin_versions([schedule], start - timedelta(microseconds=1))
    return schedule


@pytest.mark.parametrize("overlap", ["queue", "skip", "cancel_running"])
@pytest.mark.parametrize("jitter", [0, 0.05])
def test_a_pause_among_firing_beats_loses_and_doubles_no_instant(overlap: str, jitter: float) -> None:
    job = make_job(overlap=overlap, max_concurrency=2)
    rows = [often(job, jitter_seconds=jitter) for _ in range(3)]
    deadline = datetime.now(UTC) + timedelta(seconds=1.5)

    def beats() -> None:
        while datetime.now(UTC) < deadline:
            fire_due_schedules(limit=2)

    def person() -> None:
        while datetime.now(UTC) < deadline:
            commands.pause_job(job.id, note="")
            commands.resume_job(job.id)

    at_once([beats, beats, person])
    commands.cancel_job(job.id, by="test")

    for schedule in rows:
        history = list(schedule.history.order_by("number"))
        assert len(history) > 2, "it was really paused"
        assert [v.to_at for v in history[:-1]] == [v.from_at for v in history[1:]]
        end = history[-1].to_at
        assert end is not None
        wanted = list(instants_between(schedules.recurrence_of(schedule), history[0].from_at, end))
        fired = list(Execution.objects.filter(schedule=schedule).values_list("scheduled_for", flat=True))
        in_force = [
            instant for v in history if not v.paused and v.to_at
            for instant in instants_between(schedules.recurrence_of(v), v.from_at, v.to_at)
        ]  # fmt: skip
        late = sum(DroppedRange.objects.filter(schedule=schedule, reason="catch_up").values_list("count", flat=True))
        paused = sum(DroppedRange.objects.filter(schedule=schedule, reason="paused").values_list("count", flat=True))
        assert late == 0
        assert sorted(fired) == in_force
        assert len(fired) + paused == len(wanted)


def delayed(job: Job) -> tuple[Schedule, list[Execution]]:
    """A fixed delay whose run is under way."""
    start = datetime.now(UTC)
    schedule = make_schedule(
        job=job, kind="delay", expression="3600", starts_at=start, next_instant=None, next_fire_at=None
    )
    schedules.begin_versions([schedule], start)
    ids = transitions.create_executions(
        [NewExecution(job.id, Trigger.SCHEDULE, schedule_id=schedule.id, scheduled_for=start)]
    )
    return schedule, list(Execution.objects.filter(id__in=ids))


def end(execution: Execution) -> Callable[[], None]:
    def cancel() -> None:
        with transaction.atomic():
            endings.settle_endings(transitions.cancel([execution.id], by="test"))

    return cancel


def test_a_run_that_ends_while_its_job_is_paused_arms_nothing() -> None:
    for _ in range(20):
        job = make_job()
        schedule, (execution,) = delayed(job)
        at_once([end(execution), lambda job=job: commands.pause_job(job.id, note="")])  # type: ignore[misc]
        schedule.refresh_from_db()
        assert schedule.next_instant is None


def test_a_run_that_ends_while_its_job_is_resumed_arms_it_once() -> None:
    for _ in range(20):
        job = make_job()
        schedule, (execution,) = delayed(job)
        commands.pause_job(job.id, note="")
        at_once([end(execution), lambda job=job: commands.resume_job(job.id)])  # type: ignore[misc]
        schedule.refresh_from_db()
        assert schedule.next_instant is not None, "whoever came last has armed it"


def test_a_run_that_ends_while_its_job_is_cancelled_waits_for_nobody_who_waits_for_it() -> None:
    for _ in range(20):
        job = make_job()
        schedule, (execution,) = delayed(job)
        at_once([end(execution), lambda job=job: commands.cancel_job(job.id, by="test")])  # type: ignore[misc]
        schedule.refresh_from_db()
        execution.refresh_from_db()
        assert (execution.state, schedule.next_instant) == ("cancelled", None)
