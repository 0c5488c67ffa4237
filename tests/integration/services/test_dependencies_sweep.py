"""The sweep decides what nobody decided: lost judgments, and instants of upstreams that passed without an execution."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from jobs.models import Dependency, Execution, Job, Schedule, Trigger
from jobs.services import transitions
from jobs.services.dependencies import SweepResult, sweep_blocked
from jobs.services.transitions import NewExecution
from jobs.states import State
from tests.factories import make_execution, make_job, make_schedule

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC)


def follower(upstream: Job, condition: str = "success") -> Job:
    job = make_job(owner=upstream.owner)
    Dependency.objects.create(job=job, upstream=upstream, condition=condition)
    return job


def blocked_in(run: Execution, *jobs: Job) -> list[Execution]:
    ids = transitions.create_executions(
        [NewExecution(job.id, Trigger.DEPENDENCY, state=State.BLOCKED, run_id=run.run_id) for job in jobs]
    )
    return [Execution.objects.get(id=each) for each in ids]


def lose_end(execution: Execution, state: State = State.SUCCEEDED) -> None:
    """It ended, and whoever should have resolved its dependents did not."""
    Execution.objects.filter(id=execution.id).update(state=state, ended_at=NOW)


def states(*executions: Execution) -> list[str]:
    return [Execution.objects.values_list("state", flat=True).get(id=e.id) for e in executions]


@pytest.mark.parametrize(("how", "becomes"), [(State.SUCCEEDED, "ready"), (State.FAILED, "skipped")])
def test_a_judgment_that_was_lost_in_a_run_is_made(how: State, becomes: str) -> None:
    run = make_execution()
    (waiting,) = blocked_in(run, follower(run.job))
    assert sweep_blocked() == SweepResult(looked_at=1)
    lose_end(run, how)
    swept = sweep_blocked()
    assert states(waiting) == [becomes]
    assert (swept.unblocked, swept.skipped) == ((1, 0) if becomes == "ready" else (0, 1))
    assert sweep_blocked() == SweepResult()


def test_a_skip_by_the_sweep_travels_on() -> None:
    run = make_execution()
    first = follower(run.job)
    second = follower(first)
    last = follower(second, "completion")
    waiting = blocked_in(run, first)
    lose_end(run, State.FAILED)
    sweep_blocked()
    assert states(*waiting) == ["skipped"]
    assert Execution.objects.get(job=second).state == "skipped"
    assert Execution.objects.get(job=last).state == "ready"


def test_an_instant_that_passed_without_an_execution_is_noticed() -> None:
    upstream = make_job()
    schedule = make_schedule(job=upstream, next_instant=NOW)
    dependent = follower(upstream, "completion")
    own = make_schedule(job=dependent, next_instant=NOW + timedelta(hours=1))
    transitions.create_executions(
        [
            NewExecution(upstream.id, Trigger.SCHEDULE, State.MISSED, schedule_id=schedule.id,
                         scheduled_for=NOW - timedelta(hours=1)),
            NewExecution(dependent.id, Trigger.SCHEDULE, State.BLOCKED, schedule_id=own.id, scheduled_for=NOW),
        ]
    )  # fmt: skip
    waiting = Execution.objects.get(job=dependent)
    sweep_blocked()
    assert states(waiting) == ["blocked"]
    Schedule.objects.filter(id=schedule.id).update(next_instant=None, next_fire_at=None)
    assert sweep_blocked().unblocked == 1
    assert states(waiting) == ["ready"]


def test_one_that_waits_for_nothing_any_more_goes_on() -> None:
    run = make_execution()
    (waiting,) = blocked_in(run, follower(run.job))
    Dependency.objects.all().delete()
    sweep_blocked()
    assert states(waiting) == ["ready"]


def test_a_job_that_was_cancelled_behind_its_back_is_skipped() -> None:
    run = make_execution()
    dependent = follower(run.job)
    (waiting,) = blocked_in(run, dependent)
    Job.objects.filter(id=dependent.id).update(state="cancelled")
    sweep_blocked()
    assert states(waiting) == ["skipped"]


def test_a_batch_is_bounded_and_the_next_goes_on_after_it() -> None:
    run = make_execution()
    waiting = blocked_in(run, *[follower(run.job) for _ in range(5)])
    lose_end(run)
    # Those that are looked at and stay come first: they must not hide the others.
    stays = make_execution()
    stuck = blocked_in(stays, *[follower(stays.job) for _ in range(2)])
    looked_at, after = [], None
    while True:
        swept = sweep_blocked(limit=2, after=after)
        looked_at.append(swept.looked_at)
        after = swept.after
        if after is None:
            break
    assert looked_at == [2, 2, 2, 1]
    assert states(*waiting) == ["ready"] * 5
    assert states(*stuck) == ["blocked"] * 2


def test_looking_at_what_stays_writes_nothing() -> None:
    run = make_execution()
    (waiting,) = blocked_in(run, follower(run.job))
    sweep_blocked()
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmax::text FROM jobs_execution WHERE id = %s", [waiting.id])
        assert cursor.fetchone() == ("0",)


def test_the_sweep_stands_on_its_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        from jobs import sql

        cursor.execute(f"EXPLAIN {sql.statement('blocked_page')}", {"after": "0" * 32, "limit": 10})
        assert "using execution_blocked" in "\n".join(line for (line,) in cursor.fetchall())
