"""Past its deadline nothing starts: what waits ends with a reason of its own, what runs gets at most the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.errors import StaleAttempt
from jobs.models import Attempt, Dependency, Execution, ExecutionEvent
from jobs.protocol import Report
from jobs.services import transitions
from jobs.services.attempts import claim_attempt, finish_attempt
from jobs.services.deadlines import expire_overdue
from jobs.states import Reason, State
from tests.factories import claim_on, make_execution, make_job, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db

FAILED = Report(Reason.EXIT, exit_code=3)


def with_deadline(seconds: float = 100, *, state: State = State.READY, **version: Any) -> Execution:
    return make_execution(job=make_job(deadline_seconds=seconds, **version), state=state)


def pass_deadline(execution: Execution) -> None:
    Execution.objects.filter(id=execution.id).update(deadline_at=datetime.now(UTC) - timedelta(seconds=1))


def left(execution: Execution) -> float:
    execution.refresh_from_db()
    assert execution.deadline_at is not None
    return (execution.deadline_at - execution.fired_at).total_seconds()


def test_it_counts_from_when_it_fired_and_without_one_there_is_none() -> None:
    assert left(with_deadline(100)) == pytest.approx(100, abs=1)
    assert make_execution().deadline_at is None
    assert with_deadline(state=State.MISSED).deadline_at is None


@pytest.mark.parametrize("state", [State.BLOCKED, State.READY, State.BACKING_OFF, State.QUEUED])
def test_what_waits_ends_when_it_has_passed_and_not_before(state: State) -> None:
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


def test_what_runs_is_left_to_its_worker() -> None:
    execution = with_deadline()
    claim_on(make_worker(), execution)
    pass_deadline(execution)
    assert expire_overdue() == 0


def test_nobody_claims_what_is_overdue() -> None:
    execution = with_deadline()
    hold = place_on(make_worker(), execution)
    pass_deadline(execution)
    with pytest.raises(StaleAttempt):
        claim_attempt(hold)
    assert not Attempt.objects.exists()


@pytest.mark.parametrize(
    ("deadline", "timeout", "low", "high"), [(100, 60, 60, 60), (30, 60, 20, 30), (None, 60, 60, 60)]
)
def test_a_run_gets_the_lesser_of_its_timeout_and_the_rest(
    deadline: float | None, timeout: float, low: float, high: float
) -> None:
    execution = make_execution(job=make_job(deadline_seconds=deadline, timeout_seconds=timeout))
    claimed = claim_attempt(place_on(make_worker(), execution))
    assert low <= claimed.wall_seconds(0) <= high
    if deadline is not None and deadline < timeout:
        assert claimed.wall_seconds(12) <= high - 12, "what is fetched for long runs shorter"
        assert 0 < claimed.wall_seconds(2 * deadline) < 1


def test_a_run_that_its_deadline_ended_is_not_tried_again() -> None:
    execution = with_deadline(retry={"max_attempts": 9, "backoff_seconds": 0})
    hold = run_on(make_worker(), execution)
    pass_deadline(execution)
    finish_attempt(hold, Report(Reason.TIMEOUT))
    execution.refresh_from_db()
    assert (execution.state, execution.reason, execution.dead_letter) == ("timed_out", "deadline", "open")
    assert Attempt.objects.get().reason == "deadline"


def test_a_try_that_would_come_too_late_is_not_waited_for() -> None:
    retry = {"max_attempts": 9, "backoff_seconds": 500}
    worker = make_worker()
    late, early = with_deadline(100, retry=retry), with_deadline(1000, retry=retry)
    assert finish_attempt(run_on(worker, late), FAILED).state == "failed"
    assert finish_attempt(run_on(worker, early), FAILED).state == "backing_off"


def test_a_success_that_comes_late_is_a_success() -> None:
    execution = with_deadline()
    hold = run_on(make_worker(), execution)
    pass_deadline(execution)
    assert finish_attempt(hold, Report(Reason.EXIT, exit_code=0)).state == "succeeded"


def test_what_waited_for_an_overdue_one_is_decided() -> None:
    upstream = make_job(deadline_seconds=100)
    dependent = make_job(owner=upstream.owner)
    Dependency.objects.create(job=dependent, upstream=upstream, condition="failure")
    execution = make_execution(job=upstream)
    pass_deadline(execution)
    expire_overdue()
    assert Execution.objects.get(job=dependent).state == "ready"


def test_a_lost_run_is_placed_again_only_until_its_deadline() -> None:
    execution = with_deadline()
    worker = make_worker()
    run_on(worker, execution)
    pass_deadline(execution)
    (moved,) = transitions.lose_held({worker.worker_id: None})
    assert moved.state == "ready"
    assert expire_overdue() == 1


def test_a_batch_is_bounded() -> None:
    for _ in range(3):
        pass_deadline(with_deadline())
    assert [expire_overdue(limit=2), expire_overdue(limit=2)] == [2, 1]
