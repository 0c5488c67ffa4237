"""The sweep of blocked executions: lost races, and upstream instants that passed without an execution."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from jobs.domain.states import State
from jobs.execution import transitions
from jobs.execution.dependents import SweepResult, sweep_blocked
from jobs.execution.transitions import NewExecution
from jobs.models import Dependency, Execution, Job, Schedule, Trigger
from tests.support.factories import make_execution, make_job, make_schedule

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC)


def make_dependent(upstream: Job, condition: str = "success") -> Job:
    job = make_job(owner=upstream.owner)
    Dependency.objects.create(job=job, upstream=upstream, condition=condition)
    return job


def blocked_in(run: Execution, *jobs: Job) -> list[Execution]:
    ids = transitions.create_executions(
        [NewExecution(job.id, Trigger.DEPENDENCY, state=State.BLOCKED, run_id=run.run_id) for job in jobs]
    )
    return [Execution.objects.get(id=each) for each in ids]


def lose_completion(execution: Execution, state: State = State.SUCCEEDED) -> None:
    """Finish it without resolving its dependents."""
    Execution.objects.filter(id=execution.id).update(state=state, ended_at=NOW)


def states(*executions: Execution) -> list[str]:
    return [Execution.objects.values_list("state", flat=True).get(id=e.id) for e in executions]


@pytest.mark.parametrize(("how", "becomes"), [(State.SUCCEEDED, "ready"), (State.FAILED, "skipped")])
def test_sweep_decides_executions_that_a_lost_race_left_blocked(how: State, becomes: str) -> None:
    run = make_execution()
    (waiting,) = blocked_in(run, make_dependent(run.job))
    assert sweep_blocked() == SweepResult(examined=1)
    lose_completion(run, how)
    swept = sweep_blocked()
    assert states(waiting) == [becomes]
    assert (swept.unblocked, swept.skipped) == ((1, 0) if becomes == "ready" else (0, 1))
    assert sweep_blocked() == SweepResult()


def test_skip_by_the_sweep_propagates() -> None:
    run = make_execution()
    first = make_dependent(run.job)
    second = make_dependent(first)
    last = make_dependent(second, "completion")
    waiting = blocked_in(run, first)
    lose_completion(run, State.FAILED)
    sweep_blocked()
    assert states(*waiting) == ["skipped"]
    assert Execution.objects.get(job=second).state == "skipped"
    assert Execution.objects.get(job=last).state == "ready"


def test_sweep_notices_an_upstream_instant_without_an_execution() -> None:
    upstream = make_job()
    schedule = make_schedule(job=upstream, next_instant=NOW)
    dependent = make_dependent(upstream, "completion")
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


def test_sweep_unblocks_executions_without_upstreams() -> None:
    run = make_execution()
    (waiting,) = blocked_in(run, make_dependent(run.job))
    Dependency.objects.all().delete()
    sweep_blocked()
    assert states(waiting) == ["ready"]


def test_sweep_skips_executions_of_a_cancelled_job() -> None:
    run = make_execution()
    dependent = make_dependent(run.job)
    (waiting,) = blocked_in(run, dependent)
    Job.objects.filter(id=dependent.id).update(state="cancelled")
    sweep_blocked()
    assert states(waiting) == ["skipped"]


def test_sweep_is_bounded_and_the_next_one_continues() -> None:
    run = make_execution()
    waiting = blocked_in(run, *[make_dependent(run.job) for _ in range(5)])
    lose_completion(run)
    # Executions that stay blocked come first: they must not hide the others.
    stays = make_execution()
    stuck = blocked_in(stays, *[make_dependent(stays.job) for _ in range(2)])
    looked_at, after = [], None
    while True:
        swept = sweep_blocked(limit=2, after=after)
        looked_at.append(swept.examined)
        after = swept.after
        if after is None:
            break
    assert looked_at == [2, 2, 2, 1]
    assert states(*waiting) == ["ready"] * 5
    assert states(*stuck) == ["blocked"] * 2


def test_sweep_of_undecidable_executions_writes_nothing() -> None:
    run = make_execution()
    (waiting,) = blocked_in(run, make_dependent(run.job))
    sweep_blocked()
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmax::text FROM jobs_execution WHERE id = %s", [waiting.id])
        assert cursor.fetchone() == ("0",)


def test_sweep_uses_its_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        from jobs.db import sql

        cursor.execute(f"EXPLAIN {sql.statement('read_blocked_page')}", {"after": "0" * 32, "limit": 10})
        assert "using execution_blocked" in "\n".join(line for (line,) in cursor.fetchall())
