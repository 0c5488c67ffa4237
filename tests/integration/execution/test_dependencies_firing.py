"""Firing jobs with a schedule and upstreams: blocked, and decided in the same transaction."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.definitions.lifecycle import execute_job
from jobs.domain.states import Reason, State
from jobs.domain.worker_protocol import RunReport
from jobs.execution.attempts import finish_attempt
from jobs.execution.dependents import sweep_blocked
from jobs.models import Dependency, Execution, Job, Schedule
from jobs.scheduling.firing import fire_due_schedules
from tests.support.factories import make_job, make_schedule, make_worker, run_on

pytestmark = pytest.mark.django_db

SUCCESS = RunReport(Reason.EXIT, exit_code=0)
FAILURE = RunReport(Reason.EXIT, exit_code=1)


def due(job: Job, *, instant: datetime | None = None, **fields: object) -> Schedule:
    instant = instant or datetime.now(UTC) - timedelta(seconds=1)
    return make_schedule(job=job, expression="3600", starts_at=instant, next_instant=instant, **fields)


def after(upstream: Job, condition: str = "success", **version: Any) -> Job:
    job = make_job(owner=upstream.owner, **version)
    Dependency.objects.create(job=job, upstream=upstream, condition=condition)
    return job


def only(job: Job) -> Execution:
    return Execution.objects.get(job=job)


def states(job: Job) -> Counter[str]:
    return Counter(Execution.objects.filter(job=job).values_list("state", flat=True))


@pytest.mark.parametrize(("report", "becomes"), [(SUCCESS, "ready"), (FAILURE, "skipped")])
@pytest.mark.parametrize("apart", [True, False])
def test_dependent_fired_at_one_instant_waits_for_its_upstream(report: RunReport, becomes: str, apart: bool) -> None:
    instant = datetime.now(UTC) - timedelta(seconds=1)
    upstream = make_job()
    dependent = after(upstream)
    own = due(dependent, instant=instant)
    due(upstream, instant=instant)
    # In one batch, or the dependent first.
    result = fire_due_schedules(limit=1 if apart else 10)
    assert result.fired == (1 if apart else 2)
    while fire_due_schedules(limit=1).schedules:
        pass
    assert (only(upstream).state, only(dependent).state) == ("ready", "blocked")
    assert only(dependent).schedule_id == own.id
    finish_attempt(run_on(make_worker(), only(upstream)), report)
    assert only(dependent).state == becomes
    assert Execution.objects.count() == 2, "the upstream creates no execution of it"


def test_dependent_is_ready_at_once_if_the_upstream_has_finished() -> None:
    upstream = make_job()
    dependent = after(upstream)
    later = make_schedule(job=dependent, next_instant=None, next_fire_at=None)
    due(upstream, instant=datetime.now(UTC) - timedelta(minutes=1))
    fire_due_schedules()
    finish_attempt(run_on(make_worker(), only(upstream)), SUCCESS)
    now = datetime.now(UTC)
    Schedule.objects.filter(id=later.id).update(next_instant=now, next_fire_at=now)
    fire_due_schedules()
    assert only(dependent).state == "ready"


def test_missed_upstream_instants_skip_the_dependent_by_the_next_sweep() -> None:
    upstream = make_job()
    dependent = after(upstream)
    due(dependent)
    due(upstream, instant=datetime.now(UTC) - timedelta(minutes=5), catch_up="none")
    fire_due_schedules(limit=10)
    assert states(upstream) == {"missed": 1}
    sweep_blocked()
    assert states(dependent) == {"skipped": 1}


def test_job_without_upstreams_is_ready_at_once() -> None:
    job = make_job()
    due(job)
    fire_due_schedules()
    assert only(job).state == "ready"


def test_execution_by_hand_does_not_wait_for_upstreams() -> None:
    upstream = make_job()
    dependent = after(upstream)
    due(upstream)
    make_schedule(job=dependent, next_instant=None, next_fire_at=None)
    execute_job(dependent.id)
    assert only(dependent).state == "ready"


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("queue", {"blocked": 2}),
        ("skip", {"blocked": 1, "skipped": 1}),
        ("cancel_running", {"blocked": 1, "cancelled": 1}),
    ],
)
def test_blocked_execution_counts_as_unfinished(overlap: str, expected: dict[str, int]) -> None:
    upstream = make_job()
    due(upstream)
    dependent = after(upstream, overlap=overlap, max_concurrency=1)
    due(dependent)
    fire_due_schedules()
    assert states(dependent) == {"blocked": 1}
    due(dependent)
    fire_due_schedules()
    assert states(dependent) == expected
    newest = Execution.objects.filter(job=dependent, state="blocked").latest("id")
    finish_attempt(run_on(make_worker(), only(upstream)), SUCCESS)
    newest.refresh_from_db()
    assert newest.state == State.READY
