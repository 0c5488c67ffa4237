"""The fence of attempts, and how each outcome moves the execution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from jobs.dispatch.placement import place_ready_executions
from jobs.domain.errors import StaleAttempt
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, RunReport, StoredOutput
from jobs.execution import transitions
from jobs.execution.attempts import claim_attempt, finish_attempt, start_attempt
from jobs.fleet import leases
from jobs.models import Attempt, Execution, Output, Worker
from tests.support.factories import claim_on, hold_of, make_execution, make_job, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db

DONE = RunReport(Reason.EXIT, exit_code=0)
FAILED = RunReport(Reason.EXIT, exit_code=3)
FORGERIES: dict[str, Callable[[AttemptFence], AttemptFence]] = {
    "execution": lambda hold: replace(hold, execution_id=uuid4()),
    "older attempt": lambda hold: replace(hold, attempt=hold.attempt - 1),
    "later attempt": lambda hold: replace(hold, attempt=hold.attempt + 1),
    "worker": lambda hold: replace(hold, worker_id=uuid4()),
    "incarnation": lambda hold: replace(hold, incarnation=hold.incarnation + 1),
}


def snapshot(hold: AttemptFence) -> tuple[object, object]:
    return (
        Execution.objects.values().get(id=hold.execution_id),
        list(Attempt.objects.filter(execution_id=hold.execution_id).values()),
    )


def refused(call: Callable[[], object], hold: AttemptFence) -> None:
    before = snapshot(hold)
    with pytest.raises(StaleAttempt):
        call()
    assert snapshot(hold) == before


@pytest.mark.parametrize("forgery", FORGERIES)
def test_only_the_holder_claims_starts_and_finishes(forgery: str) -> None:
    hold = place_on(make_worker(), make_execution())
    forged = FORGERIES[forgery](hold)
    refused(lambda: claim_attempt(forged), hold)
    claim_attempt(hold)
    refused(lambda: start_attempt(forged, {}), hold)
    start_attempt(hold, {})
    refused(lambda: finish_attempt(forged, DONE), hold)
    assert finish_attempt(hold, DONE).state == "succeeded"


def test_a_plain_run_makes_three_calls_of_one_round_trip_each() -> None:
    hold = place_on(make_worker(), make_execution())
    with CaptureQueriesContext(connection) as captured:
        claim_attempt(hold)
        start_attempt(hold, {})
        finish_attempt(hold, DONE)
    assert len(captured.captured_queries) == 3


def test_steps_happen_once_and_in_order() -> None:
    hold = place_on(make_worker(), make_execution())
    refused(lambda: start_attempt(hold, {}), hold)
    refused(lambda: finish_attempt(hold, DONE), hold)
    claim_attempt(hold)
    refused(lambda: claim_attempt(hold), hold)
    start_attempt(hold, {})
    refused(lambda: claim_attempt(hold), hold)
    finish_attempt(hold, DONE)
    for call in (lambda: claim_attempt(hold), lambda: start_attempt(hold, {}), lambda: finish_attempt(hold, DONE)):
        refused(call, hold)


def test_cancelled_execution_is_not_claimed() -> None:
    hold = place_on(make_worker(), make_execution())
    (moved,) = transitions.cancel([hold.execution_id], by="test")
    assert moved.state == "cancelled", "unclaimed, so it is cancelled at once"
    refused(lambda: claim_attempt(hold), hold)


def test_queued_execution_with_requested_cancel_is_not_claimed() -> None:
    hold = place_on(make_worker(), make_execution())
    Execution.objects.update(cancel_requested_at=datetime.now(UTC))
    refused(lambda: claim_attempt(hold), hold)


def test_worker_without_lease_claims_nothing() -> None:
    hold = place_on(make_worker(), make_execution())
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    refused(lambda: claim_attempt(hold), hold)


def test_worker_does_not_claim_for_its_earlier_incarnation() -> None:
    worker = make_worker(name="again")
    hold = place_on(worker, make_execution())
    Worker.objects.update(incarnation=worker.incarnation + 1)
    refused(lambda: claim_attempt(hold), hold)


def test_claim_returns_the_whole_spec() -> None:
    job = make_job(name="report", args=["--day"], env={"REGION": "eu"}, runtime="python", memory_mb=77)
    hold = place_on(make_worker(), make_execution(job=job))
    claimed = claim_attempt(hold)
    assert (claimed.execution_id, claimed.attempt, claimed.job_id) == (hold.execution_id, 1, job.id)
    assert (claimed.job_name, claimed.runtime, claimed.memory_mb) == ("report", "python", 77)
    assert (claimed.args, claimed.env) == ('["--day"]', '{"REGION": "eu"}')
    assert (claimed.sha256, claimed.size) == ("0" * 64, 1)
    attempt = Attempt.objects.get()
    assert (attempt.number, attempt.worker_id, attempt.claimed_at) == (1, hold.worker_id, claimed.claimed_at)


def test_success_stores_every_stage_and_the_receipt() -> None:
    execution = make_execution()
    hold = run_on(make_worker(), execution)
    done = replace(DONE, cpu_seconds=1.5, peak_memory_bytes=9, peak_disk_bytes=8)
    finish_attempt(hold, replace(done, result={"rows": 3}, log_truncated=True))
    execution.refresh_from_db()
    assert (execution.state, execution.reason, execution.exit_code) == ("succeeded", "exit", 0)
    assert (execution.result, execution.tries_used) == ({"rows": 3}, 1)
    stages = [
        execution.fired_at, execution.ready_at, execution.placed_at,
        execution.claimed_at, execution.started_at, execution.ended_at,
    ]  # fmt: skip
    assert None not in stages
    assert stages == sorted(stages, key=lambda at: at or datetime.max.replace(tzinfo=UTC))
    attempt = Attempt.objects.get()
    assert (attempt.reason, attempt.exit_code) == ("exit", 0)
    assert (attempt.cpu_seconds, attempt.peak_memory_bytes, attempt.peak_disk_bytes) == (1.5, 9, 8)
    assert attempt.log_truncated
    assert attempt.receipt == {"namespaces": ["pid"]}


def test_signal_is_stored_instead_of_an_exit_code() -> None:
    finish_attempt(run_on(make_worker(), make_execution()), RunReport(Reason.EXIT, signal=11))
    execution = Execution.objects.get()
    assert (execution.state, execution.exit_code, execution.signal) == ("failed", None, 11)
    assert Attempt.objects.get().signal == 11


def test_failure_with_tries_left_backs_off_and_runs_as_the_next_attempt() -> None:
    execution = make_execution(job=make_job(retry={"max_attempts": 2, "backoff_seconds": 40}))
    worker = make_worker()
    moved = finish_attempt(run_on(worker, execution), FAILED)
    assert (moved.state, moved.ended) == ("backing_off", False)
    execution.refresh_from_db()
    assert execution.retry_at is not None
    assert 35 < (execution.retry_at - datetime.now(UTC)).total_seconds() <= 40
    assert (execution.tries_used, execution.worker_id, execution.reason, execution.ended_at) == (1, None, None, None)

    assert transitions.wake_backed_off() == 0, "it is not due yet"
    Execution.objects.update(retry_at=datetime.now(UTC) - timedelta(seconds=1))
    assert transitions.wake_backed_off() == 1
    woken = Execution.objects.get(id=execution.id)
    assert (woken.state, woken.retry_at) == ("ready", None)

    hold = run_on(worker, execution)
    assert hold.attempt == 2
    assert finish_attempt(hold, FAILED).state == "failed", "the tries are used up"
    assert list(Attempt.objects.order_by("number").values_list("number", "reason", "exit_code")) == [
        (1, "exit", 3),
        (2, "exit", 3),
    ]


def test_backoff_grows_with_each_try() -> None:
    execution = make_execution(job=make_job(retry={"max_attempts": 9, "backoff_seconds": 10, "backoff_factor": 3}))
    Execution.objects.update(tries_used=2)
    finish_attempt(run_on(make_worker(), execution), FAILED)
    execution.refresh_from_db()
    assert execution.retry_at is not None
    assert 85 < (execution.retry_at - datetime.now(UTC)).total_seconds() <= 90


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        (Reason.TIMEOUT, "timed_out"),
        (Reason.OUT_OF_MEMORY, "failed"),
        (Reason.ARTIFACT_MISMATCH, "failed"),
        (Reason.ARTIFACT_UNAVAILABLE, "failed"),
        (Reason.SANDBOX_ERROR, "failed"),
        (Reason.SECRET_UNAVAILABLE, "failed"),
    ],
)
def test_outcome_without_tries_left_keeps_its_reason(reason: Reason, state: str) -> None:
    execution = make_execution()
    finish_attempt(run_on(make_worker(), execution), RunReport(reason, error="why"))
    execution.refresh_from_db()
    assert (execution.state, execution.reason) == (state, reason)
    assert Attempt.objects.get().error == "why"


def test_failure_before_the_start_finishes_the_execution() -> None:
    execution = make_execution()
    assert finish_attempt(claim_on(make_worker(), execution), RunReport(Reason.ARTIFACT_MISMATCH)).state == "failed"
    execution.refresh_from_db()
    assert execution.started_at is None


@pytest.mark.parametrize("report", [DONE, FAILED, RunReport(Reason.TIMEOUT), RunReport(Reason.RELEASED)])
def test_requested_cancel_overrides_every_outcome(report: RunReport) -> None:
    execution = make_execution(job=make_job(retry={"max_attempts": 5}))
    hold = run_on(make_worker(), execution)
    (moved,) = transitions.cancel([execution.id], by="test")
    assert moved.state == "running", "the cancel is only requested"
    finish_attempt(hold, replace(report, result={"never": "kept"}))
    execution.refresh_from_db()
    assert (execution.state, execution.reason, execution.result) == ("cancelled", "cancelled", None)


def test_cancelling_is_idempotent_and_keeps_finished_executions() -> None:
    execution = make_execution()
    assert len(transitions.cancel([execution.id], by="a")) == 1
    assert transitions.cancel([execution.id], by="b") == []
    done = make_execution()
    finish_attempt(run_on(make_worker(), done), DONE)
    assert transitions.cancel([done.id], by="a") == []


def test_release_uses_no_try_and_the_next_placement_is_a_new_attempt() -> None:
    execution = make_execution()
    worker = make_worker()
    first = run_on(worker, execution)
    assert finish_attempt(first, RunReport(Reason.RELEASED)).state == "ready"
    execution.refresh_from_db()
    assert (execution.tries_used, execution.attempt, execution.worker_id) == (0, 1, None)
    place_ready_executions()
    second = hold_of(execution)
    assert second.attempt == 2
    refused(lambda: finish_attempt(first, DONE), first)
    claim_attempt(second)
    start_attempt(second, {})
    assert finish_attempt(second, DONE).state == "succeeded"
    assert [a.reason for a in Attempt.objects.order_by("number")] == ["released", "exit"]


@pytest.mark.parametrize("report", [FAILED, RunReport(Reason.RELEASED), RunReport(Reason.TIMEOUT)])
@pytest.mark.parametrize("prepare", [claim_on, run_on])
def test_at_most_once_is_never_retried(report: RunReport, prepare: Callable[..., AttemptFence]) -> None:
    execution = make_execution(job=make_job(delivery="at_most_once", retry={"max_attempts": 5}))
    moved = finish_attempt(prepare(make_worker(), execution), report)
    assert moved.ended
    execution.refresh_from_db()
    assert (execution.reason, execution.tries_used) == (report.reason, 1)


def test_only_a_successful_attempt_publishes_outputs() -> None:
    output = StoredOutput("report.csv", 3, "ab" * 32)
    worker = make_worker()
    finish_attempt(run_on(worker, make_execution()), replace(FAILED, outputs=[output]))
    cancelled = run_on(worker, make_execution())
    transitions.cancel([cancelled.execution_id], by="test")
    finish_attempt(cancelled, replace(DONE, outputs=[output]))
    stale = run_on(worker, make_execution())
    transitions.lose_executions({worker.worker_id: None})
    with pytest.raises(StaleAttempt):
        finish_attempt(stale, replace(DONE, outputs=[output]))
    assert not Output.objects.exists()

    winner = run_on(worker, make_execution())
    finish_attempt(winner, replace(DONE, outputs=[output]))
    stored = Output.objects.get()
    assert (stored.name, stored.size, stored.attempt.execution_id) == ("report.csv", 3, winner.execution_id)


def test_finish_is_atomic() -> None:
    hold = run_on(make_worker(), make_execution())
    twice = StoredOutput("same", 3, "ab" * 32)
    before = snapshot(hold)
    with pytest.raises(DatabaseError):
        finish_attempt(hold, replace(DONE, outputs=[twice, twice]))
    assert snapshot(hold) == before


def test_any_error_text_can_be_stored() -> None:
    finish_attempt(run_on(make_worker(), make_execution()), replace(FAILED, error="a\0b\udcff" + "x" * 9000))
    error = Attempt.objects.get().error
    assert error.startswith("ab?x")
    assert len(error) == 4000


def test_worker_without_lease_may_finish_what_was_not_reclaimed() -> None:
    """The lease fences claims; the row fences the outcome until the reaper reclaims it."""
    hold = run_on(make_worker(), make_execution())
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    assert finish_attempt(hold, DONE).state == "succeeded"


def test_draining_worker_starts_and_finishes_what_it_claimed() -> None:
    worker = make_worker()
    hold = claim_on(worker, make_execution())
    leases.drain_worker(worker)
    start_attempt(hold, {})
    assert finish_attempt(hold, DONE).state == "succeeded"


def test_start_is_idempotent() -> None:
    execution = make_execution()
    hold = claim_on(make_worker(), execution)
    start_attempt(hold, {})
    first = Execution.objects.get(id=execution.id).started_at
    start_attempt(hold, {})
    assert Execution.objects.get(id=execution.id).started_at == first
