"""Deadlines: an overdue execution never starts; a run gets at most the time left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.domain.errors import StaleAttempt
from jobs.domain.states import Reason, State
from jobs.domain.worker_protocol import RunReport
from jobs.execution import transitions
from jobs.execution.attempts import claim_attempt, finish_attempt
from jobs.execution.deadlines import expire_overdue
from jobs.models import Attempt, Dependency, Execution, ExecutionEvent
from tests.support.factories import claim_on, make_execution, make_job, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db

FAILED = RunReport(Reason.EXIT, exit_code=3)


def with_deadline(seconds: float = 100, *, state: State = State.READY, **version: Any) -> Execution:
    return make_execution(job=make_job(deadline_seconds=seconds, **version), state=state)


def pass_deadline(execution: Execution) -> None:
    Execution.objects.filter(id=execution.id).update(deadline_at=datetime.now(UTC) - timedelta(seconds=1))


def left(execution: Execution) -> float:
    execution.refresh_from_db()
    assert execution.deadline_at is not None
    return (execution.deadline_at - execution.fired_at).total_seconds()


def test_deadline_counts_from_firing_and_is_optional() -> None:
    assert left(with_deadline(100)) == pytest.approx(100, abs=1)
    assert make_execution().deadline_at is None
    assert with_deadline(state=State.MISSED).deadline_at is None


@pytest.mark.parametrize("state", [State.BLOCKED, State.READY, State.BACKING_OFF, State.QUEUED])
def test_waiting_execution_times_out_at_its_deadline_and_not_before(state: State) -> None:
    execution = with_deadline(state=State.BLOCKED if state is State.BLOCKED else State.READY, retry={"max_attempts": 9})
    if state is State.BACKING_OFF:
        finish_attempt(run_on(make_worker(), execution), FAILED)
    elif state is State.QUEUED:
        place_on(make_worker(), execution)
    assert expire_overdue() == 0
    pass_deadline(execution)

    assert expire_overdue() == 1

    execution.refresh_from_db()
    assert (execution.state, execution.reason, execution.dead_letter) == ("timed_out", "deadline", "open")
    assert (execution.retry_at, execution.ended_at is None) == (None, False)
    (event,) = ExecutionEvent.objects.filter(execution_id=execution.id)
    assert (event.name, event.detail) == ("execution.expired", {"was": state.value})
    assert expire_overdue() == 0


def test_running_execution_is_left_to_its_worker() -> None:
    execution = with_deadline()
    claim_on(make_worker(), execution)
    pass_deadline(execution)
    assert expire_overdue() == 0


def test_overdue_execution_is_not_claimed() -> None:
    execution = with_deadline()
    hold = place_on(make_worker(), execution)
    pass_deadline(execution)
    with pytest.raises(StaleAttempt):
        claim_attempt(hold)
    assert not Attempt.objects.exists()


@pytest.mark.parametrize(
    ("deadline", "timeout", "low", "high"), [(100, 60, 60, 60), (30, 60, 20, 30), (None, 60, 60, 60)]
)
def test_run_gets_the_lower_of_its_timeout_and_the_time_left(
    deadline: float | None, timeout: float, low: float, high: float
) -> None:
    execution = make_execution(job=make_job(deadline_seconds=deadline, timeout_seconds=timeout))
    claimed = claim_attempt(place_on(make_worker(), execution))
    assert low <= claimed.wall_seconds(0) <= high
    if deadline is not None and deadline < timeout:
        assert claimed.wall_seconds(12) <= high - 12, "time spent fetching counts"
        assert 0 < claimed.wall_seconds(2 * deadline) < 1


def test_run_stopped_by_its_deadline_is_not_retried() -> None:
    execution = with_deadline(retry={"max_attempts": 9, "backoff_seconds": 0})
    hold = run_on(make_worker(), execution)
    pass_deadline(execution)
    finish_attempt(hold, RunReport(Reason.TIMEOUT))
    execution.refresh_from_db()
    assert (execution.state, execution.reason, execution.dead_letter) == ("timed_out", "deadline", "open")
    assert Attempt.objects.get().reason == "deadline"


def test_retry_after_the_deadline_is_not_scheduled() -> None:
    retry = {"max_attempts": 9, "backoff_seconds": 500}
    worker = make_worker()
    late, early = with_deadline(100, retry=retry), with_deadline(1000, retry=retry)
    assert finish_attempt(run_on(worker, late), FAILED).state == "failed"
    assert finish_attempt(run_on(worker, early), FAILED).state == "backing_off"


def test_success_after_the_deadline_counts() -> None:
    execution = with_deadline()
    hold = run_on(make_worker(), execution)
    pass_deadline(execution)
    assert finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0)).state == "succeeded"


def test_expiry_resolves_dependents() -> None:
    upstream = make_job(deadline_seconds=100)
    dependent = make_job(owner=upstream.owner)
    Dependency.objects.create(job=dependent, upstream=upstream, condition="failure")
    execution = make_execution(job=upstream)
    pass_deadline(execution)
    expire_overdue()
    assert Execution.objects.get(job=dependent).state == "ready"


def test_lost_run_is_placed_again_only_until_its_deadline() -> None:
    execution = with_deadline()
    worker = make_worker()
    run_on(worker, execution)
    pass_deadline(execution)
    (moved,) = transitions.lose_executions({worker.worker_id: None})
    assert moved.state == "ready"
    assert expire_overdue() == 1


def test_batch_is_bounded() -> None:
    for _ in range(3):
        pass_deadline(with_deadline())
    assert [expire_overdue(limit=2), expire_overdue(limit=2)] == [2, 1]
