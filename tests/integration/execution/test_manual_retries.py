"""Retries create a new execution that points to the old one; a dead letter is resolved once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from jobs.definitions import lifecycle
from jobs.domain.errors import Conflict, IllegalTransition, NotFound
from jobs.domain.retry_policy import compute_backoff, parse_retry_policy
from jobs.domain.states import Reason, State
from jobs.domain.worker_protocol import RunReport
from jobs.execution import transitions
from jobs.execution.attempts import finish_attempt
from jobs.execution.dead_letters import dismiss_dead_letter
from jobs.execution.manual_retries import redrive_dead_letter, retry_execution
from jobs.models import Attempt, Dependency, Execution, ExecutionEvent, Job, JobVersion
from tests.integration.execution.test_dependencies_scheduled import Night
from tests.support.factories import make_execution, make_job, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db

FAILED = RunReport(Reason.EXIT, exit_code=3)
DONE = RunReport(Reason.EXIT, exit_code=0)


def ended(report: RunReport = FAILED, *, job: Job | None = None) -> Execution:
    execution = make_execution(job=job)
    finish_attempt(run_on(make_worker(), execution), report)
    execution.refresh_from_db()
    return execution


def events_of(execution_id: UUID) -> list[tuple[str, dict[str, str]]]:
    return list(ExecutionEvent.objects.filter(execution_id=execution_id).values_list("name", "detail"))


@pytest.mark.parametrize("report", [FAILED, RunReport(Reason.TIMEOUT), RunReport(Reason.OUT_OF_MEMORY)])
def test_final_failure_is_a_dead_letter(report: RunReport) -> None:
    assert ended(report).dead_letter == "open"


def test_retried_or_otherwise_finished_execution_is_no_dead_letter() -> None:
    assert ended(DONE).dead_letter is None
    assert ended(RunReport(Reason.CANCELLED)).dead_letter is None
    backing_off = ended(job=make_job(retry={"max_attempts": 2}))
    assert (backing_off.state, backing_off.dead_letter) == ("backing_off", None)
    waiting = make_execution()
    transitions.cancel([waiting.id], by="test")
    waiting.refresh_from_db()
    assert waiting.dead_letter is None


def test_execution_lost_for_good_is_a_dead_letter() -> None:
    worker = make_worker()
    lost, queued = make_execution(job=make_job(delivery="at_most_once")), make_execution()
    run_on(worker, lost)
    place_on(worker, queued)
    transitions.lose_executions({worker.worker_id: None})
    assert Execution.objects.get(id=lost.id).dead_letter == "open"
    assert Execution.objects.get(id=queued.id).dead_letter is None


@pytest.mark.parametrize("retry", [retry_execution, redrive_dead_letter])
def test_retry_keeps_the_instant_and_the_history(retry: object) -> None:
    execution = ended()
    Execution.objects.update(scheduled_for=datetime(2030, 1, 1, tzinfo=UTC))
    before = Execution.objects.values().get(id=execution.id)
    (attempt,) = Attempt.objects.values()

    new_id = retry(execution.id, by="ann")  # type: ignore[operator]

    again = Execution.objects.get(id=new_id)
    assert (again.state, again.trigger, again.retry_of) == ("ready", "retry", execution.id)
    assert (again.scheduled_for, again.schedule_id) == (before["scheduled_for"], None)
    assert (again.run_id, again.attempt, again.tries_used) == (again.id, 0, 0)
    assert Execution.objects.values().get(id=execution.id) == before | {"dead_letter": "redriven"}
    assert Attempt.objects.values().get() == attempt
    name = "execution.retried" if retry is retry_execution else "execution.redriven"
    assert events_of(execution.id) == [(name, {"by": "ann", "as": str(new_id)})]


def test_retry_runs_the_current_version() -> None:
    job = make_job()
    execution = ended(job=job)
    version = JobVersion.objects.get(job=job)
    version.pk, version.number, version._state.adding = uuid4(), 2, True
    version.save()
    Job.objects.update(current_version=version)
    assert Execution.objects.get(id=retry_execution(execution.id, by="ann")).version_id == version.id


def test_second_retry_is_refused_and_names_the_first() -> None:
    execution = ended()
    first = retry_execution(execution.id, by="ann")
    for again in (retry_execution, redrive_dead_letter):
        with pytest.raises(Conflict, match=str(first)):
            again(execution.id, by="bob")
    with pytest.raises(IllegalTransition, match="not ended"):
        retry_execution(first, by="ann")
    finish_attempt(run_on(make_worker(), Execution.objects.get(id=first)), FAILED)
    second = redrive_dead_letter(first, by="ann")
    assert Execution.objects.get(id=second).retry_of == first
    assert Execution.objects.count() == 3


@pytest.mark.parametrize("state", [State.MISSED, State.SKIPPED])
def test_execution_that_never_ran_can_be_retried(state: State) -> None:
    execution = make_execution(state=state)
    assert Execution.objects.get(id=retry_execution(execution.id, by="ann")).retry_of == execution.id


def test_retry_of_succeeded_cancelled_or_unknown_is_refused() -> None:
    with pytest.raises(IllegalTransition, match="succeeded"):
        retry_execution(ended(DONE).id, by="ann")
    of_cancelled = ended()
    lifecycle.cancel_job(of_cancelled.job_id, by="ann")
    with pytest.raises(Conflict, match="cancelled"):
        redrive_dead_letter(of_cancelled.id, by="ann")
    of_cancelled.refresh_from_db()
    assert of_cancelled.dead_letter == "open", "refused as a whole"
    with pytest.raises(NotFound):
        retry_execution(uuid4(), by="ann")
    with pytest.raises(NotFound):
        redrive_dead_letter(make_execution().id, by="ann")
    assert not Execution.objects.filter(retry_of__isnull=False).exists()


def test_dismissed_dead_letter_may_be_retried_but_not_redriven() -> None:
    execution = ended()
    dismiss_dead_letter(execution.id, by="ann")
    dismiss_dead_letter(execution.id, by="bob")
    execution.refresh_from_db()
    assert execution.dead_letter == "dismissed"
    assert events_of(execution.id) == [("execution.dismissed", {"by": "ann"})]
    with pytest.raises(Conflict, match="dismissed"):
        redrive_dead_letter(execution.id, by="ann")
    retry_execution(execution.id, by="ann")
    execution.refresh_from_db()
    assert execution.dead_letter == "dismissed"


def test_only_an_open_dead_letter_is_dismissed() -> None:
    execution = ended()
    redrive_dead_letter(execution.id, by="ann")
    for other in (execution, ended(DONE)):
        with pytest.raises(Conflict, match="nothing to dismiss"):
            dismiss_dead_letter(other.id, by="ann")


def test_dependents_run_again_after_a_retry() -> None:
    upstream = make_job()
    dependent = make_job(owner=upstream.owner)
    Dependency.objects.create(job=dependent, upstream=upstream)
    execution = ended(job=upstream)
    assert Execution.objects.get(job=dependent).state == "skipped"

    new_id = redrive_dead_letter(execution.id, by="ann")
    finish_attempt(run_on(make_worker(), Execution.objects.get(id=new_id)), DONE)

    assert Execution.objects.get(job=dependent, run_id=new_id).state == "ready"
    assert Execution.objects.get(job=dependent, run_id=execution.run_id).state == "skipped"


def test_scheduled_dependent_waits_for_the_retry_of_the_latest() -> None:
    night = Night()
    night.job("extract", following="03:00")
    night.job("load", "extract", following="05:00")
    failed = night.fire("extract", "01:00", State.FAILED)
    again = Execution.objects.get(id=retry_execution(failed.id, by="ann"))
    load = night.fire("load", "02:00", State.BLOCKED)
    assert night.state(load) == "blocked"
    night.end(again)
    assert night.state(load) == "ready"


def test_retry_policy_matches_codes_and_signals_with_stable_jitter() -> None:
    policy = {"max_attempts": 3, "backoff_seconds": 1000, "jitter": 1, "on_exit_codes": [75, 143]}
    worker = make_worker()
    for report, state in [
        (RunReport(Reason.EXIT, exit_code=75), "backing_off"),
        (RunReport(Reason.EXIT, signal=15), "backing_off"),
        (FAILED, "failed"),
    ]:
        execution = make_execution(job=make_job(retry=policy))
        assert finish_attempt(run_on(worker, execution), report).state == state
        execution.refresh_from_db()
        if execution.retry_at:
            waits = execution.retry_at - Attempt.objects.get(execution=execution).ended_at  # type: ignore[operator]
            expected = compute_backoff(parse_retry_policy(policy), 1, execution.id.bytes)
            assert abs(waits - expected) < timedelta(seconds=1)
