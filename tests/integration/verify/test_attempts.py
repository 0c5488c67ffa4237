"""The audit of attempts on real rows: clean after real runs, and every violation is found."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db.models import F

from jobs.dispatch import queues
from jobs.dispatch.placement import place_ready_executions
from jobs.domain.states import State
from jobs.domain.worker_protocol import Registration
from jobs.execution import transitions
from jobs.execution.deadlines import expire_overdue
from jobs.execution.transitions import NewExecution
from jobs.models import Attempt, Dependency, Execution, Job, JobVersion, Queue, Worker
from jobs.models.execution import Trigger
from jobs.verify.attempts import AttemptAudit, audit_attempts
from tests.support.factories import make_execution, make_job, make_worker, place_on, run_on, stamp_reaping

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def audit(**options: Any) -> AttemptAudit:
    now = datetime.now(UTC)
    return audit_attempts(options.pop("from_", now - HOUR), options.pop("to", now + HOUR), **options)


def differences(found: AttemptAudit) -> list[tuple[str, str]]:
    return [(each.what.value, each.execution_id) for each in found.differences]


def end(execution: Execution, state: State = State.SUCCEEDED) -> None:
    now = datetime.now(UTC)
    Execution.objects.filter(id=execution.id).update(state=state.value, ended_at=now, reason="exit")
    Attempt.objects.filter(execution=execution, ended_at=None).update(ended_at=now, reason="exit")


def run(worker: Registration, job: Job) -> Execution:
    execution = make_execution(job=job)
    run_on(worker, execution)
    return execution


@pytest.fixture
def worker() -> Registration:
    return make_worker(slots=8, cpu=8.0, memory_mb=8192)


def test_real_runs_are_clean_and_counted(worker: Registration) -> None:
    job = make_job(max_concurrency=1)
    for _ in range(3):
        end(run(worker, job))
    run(worker, job)
    found = audit()
    assert (found.clean, found.attempts, found.peak, differences(found)) == (True, 4, 1, [])


def test_overlapping_attempts_are_found(worker: Registration) -> None:
    execution = run(worker, make_job(max_concurrency=None))
    first = Attempt.objects.get()
    Attempt.objects.filter(id=first.id).update(ended_at=first.placed_at + timedelta(seconds=9), reason="lost")
    Attempt.objects.create(
        execution=execution,
        number=2,
        worker_id=first.worker_id,
        incarnation=first.incarnation,
        placed_at=first.placed_at + timedelta(seconds=5),
        claimed_at=first.claimed_at + timedelta(seconds=6),
    )
    Execution.objects.filter(id=execution.id).update(attempt=2)
    found = audit()
    assert (found.clean, found.overlapping, differences(found)) == (False, 1, [("overlapping", str(execution.id))])


def test_runs_over_the_job_limit_of_their_time_are_found(worker: Registration) -> None:
    job = make_job(max_concurrency=2)
    runs = [run(worker, job) for _ in range(2)]
    assert audit().clean
    JobVersion.objects.filter(job=job).update(max_concurrency=1)
    found = audit()
    assert (found.over_job_limit, differences(found)) == (1, [("over_job_limit", str(runs[1].id))])
    # As if the job's limit was lowered after both placements, which the previous limit allowed.
    version = JobVersion.objects.get(job=job)
    JobVersion.objects.filter(id=version.id).update(max_concurrency=2, created_at=F("created_at") - HOUR)
    version.pk, version.number, version.max_concurrency = None, 2, 1
    version.save()
    assert audit().clean
    # An hour earlier the lower limit would have applied to them.
    JobVersion.objects.filter(number=2).update(created_at=datetime.now(UTC) - HOUR / 2)
    assert audit().over_job_limit == 1


def test_runs_over_the_queue_limit_of_their_time_are_found(worker: Registration) -> None:
    queue = Queue.objects.get(name="default")
    runs = [run(worker, make_job(name=name)) for name in ("a", "b")]
    Queue.objects.update(max_concurrency=1)
    found = audit()
    assert (found.over_queue_limit, differences(found)) == (1, [("over_queue_limit", str(runs[1].id))])
    # A current edit, which the audit log records, does not apply to earlier placements.
    Queue.objects.update(max_concurrency=5)
    queue.refresh_from_db()
    queue.max_concurrency = 1
    queues.save_queue(queue, changed=["max_concurrency"])
    Attempt.objects.update(placed_at=F("placed_at") - timedelta(minutes=1))
    assert audit().clean


def test_attempt_without_end_is_found(worker: Registration) -> None:
    execution = run(worker, make_job())
    Execution.objects.filter(id=execution.id).update(
        state="ready", worker=None, incarnation=None, ready_at=datetime.now(UTC)
    )
    found = audit()
    assert (found.never_ended, differences(found)) == (1, [("never_ended", str(execution.id))])


def test_placeable_execution_is_stuck_and_held_one_is_not(worker: Registration) -> None:
    waiting = make_execution(job=make_job(name="forgotten"))
    held = make_execution(job=make_job(name="held", capabilities=["moon"]))
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    assert audit().waiting_checked == 0, "no execution has waited for long"
    Execution.objects.filter(id__in=[waiting.id, held.id]).update(ready_at=long_ago, rank=long_ago)
    found = audit()
    assert (found.waiting_checked, found.stuck, differences(found)) == (2, 1, [("stuck", str(waiting.id))])
    assert audit(job_id=held.job_id).clean
    assert audit(job_id=waiting.job_id).stuck == 1
    place_ready_executions()
    assert audit().clean


def test_retry_long_past_its_time_is_stuck() -> None:
    execution = make_execution()
    past = datetime.now(UTC) - timedelta(minutes=5)
    Execution.objects.filter(id=execution.id).update(state="backing_off", retry_at=past)
    assert differences(audit()) == [("stuck", str(execution.id))]


@pytest.mark.parametrize("state", ["ready", "blocked", "backing_off"])
def test_execution_long_past_its_deadline_is_stuck(state: str) -> None:
    execution = make_execution(job=make_job(capabilities=["moon"]))
    now = datetime.now(UTC)
    retry_at = now + HOUR if state == "backing_off" else None
    Execution.objects.update(state=state, retry_at=retry_at, deadline_at=now - timedelta(seconds=10))
    assert audit().clean, "the next pass expires it"
    Execution.objects.update(deadline_at=now - timedelta(minutes=5))
    assert differences(audit()) == [("stuck", str(execution.id))]
    assert expire_overdue() == 1
    assert audit().clean


def waiting_long(*executions: Execution, **changes: Any) -> None:
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    ids = [execution.id for execution in executions]
    Execution.objects.filter(id__in=ids).update(ready_at=long_ago, rank=long_ago, fired_at=long_ago, **changes)


def test_parked_execution_without_predecessor_is_stuck(worker: Registration) -> None:
    busy, idle = make_job(name="busy", max_concurrency=1), make_job(name="idle", max_concurrency=1)
    run(worker, busy)
    waiting_long(*[make_execution(job=busy) for _ in range(25)], job_line=1)
    forgotten = make_execution(job=idle)
    waiting_long(forgotten, job_line=1)
    assert differences(audit()) == [("stuck", str(forgotten.id))]
    Job.objects.update(owner=busy.owner)
    assert differences(audit(owner_id=busy.owner_id)) == [("stuck", str(forgotten.id))]


def test_execution_parked_behind_an_owner_below_the_limit_is_stuck(worker: Registration) -> None:
    execution = make_execution()
    waiting_long(execution, owner_line=execution.job.owner_id)
    assert differences(audit()) == [("stuck", str(execution.id))]


def test_queue_of_held_executions_does_not_hide_others(worker: Registration) -> None:
    held = make_job(name="held", capabilities=["moon"], max_concurrency=None)
    waiting_long(*[make_execution(job=held) for _ in range(25)])
    other = make_job(name="other")
    queue = Queue.objects.create(name="other", pool="default")
    forgotten = make_execution(job=other)
    waiting_long(forgotten, queue=queue)
    assert differences(audit()) == [("stuck", str(forgotten.id))]


def test_dependent_resolvable_for_long_is_stuck() -> None:
    upstream = make_execution()
    job = make_job(name="after")
    Dependency.objects.create(job=job, upstream=upstream.job, condition="success")
    (waiting_id,) = transitions.create_executions(
        [NewExecution(job.id, Trigger.DEPENDENCY, state=State.BLOCKED, run_id=upstream.run_id)]
    )
    waiting = Execution.objects.get(id=waiting_id)
    waiting_long(waiting)
    assert audit().waiting_checked == 1
    assert audit().clean, "it waits for its upstream"
    end(upstream)
    assert audit().clean, "which has just finished"
    Execution.objects.filter(id=upstream.id).update(ended_at=datetime.now(UTC) - timedelta(minutes=5))
    assert differences(audit()) == [("stuck", str(waiting.id))]


def test_long_unclaimed_execution_is_stuck(worker: Registration) -> None:
    execution = make_execution()
    place_on(worker, execution)
    assert audit().clean
    Execution.objects.update(placed_at=datetime.now(UTC) - timedelta(minutes=5))
    assert differences(audit()) == [("stuck", str(execution.id))]


def test_execution_held_by_a_lost_worker_is_stuck(worker: Registration) -> None:
    stamp_reaping()
    execution = run(worker, make_job())
    Worker.objects.update(status="lost", lease_until=datetime.now(UTC) - timedelta(seconds=10))
    assert audit().clean, "it is about to be reclaimed"
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(minutes=5))
    assert differences(audit()) == [("stuck", str(execution.id))]
    stamp_reaping(unbroken_for=1)
    assert audit().clean, "after an outage it has one lease to return"


def test_execution_of_an_old_incarnation_is_stuck(worker: Registration) -> None:
    execution = run(worker, make_job())
    Worker.objects.update(incarnation=F("incarnation") + 1)
    assert audit().clean
    Worker.objects.update(registered_at=datetime.now(UTC) - timedelta(minutes=5))
    assert differences(audit()) == [("stuck", str(execution.id))]


def test_audit_that_ran_out_of_time_is_not_clean() -> None:
    waiting_long(*[make_execution(job=make_job(name=name)) for name in "ab"])
    found = audit(within_seconds=1e-9)
    assert (found.clean, found.waiting_checked, found.waiting_unchecked) == (False, 0, 2)


def test_runs_before_the_range_count_while_active(worker: Registration) -> None:
    job = make_job(max_concurrency=2)
    old = [run(worker, job) for _ in range(2)]
    Attempt.objects.update(placed_at=F("placed_at") - HOUR, claimed_at=F("claimed_at") - HOUR)
    new = run(worker, job)
    JobVersion.objects.update(created_at=F("created_at") - 2 * HOUR)
    from_ = datetime.now(UTC) - HOUR / 2
    found = audit(from_=from_)
    assert (found.attempts, found.peak, differences(found)) == (1, 3, [("over_job_limit", str(new.id))])
    end(old[0])
    assert audit(from_=from_).over_job_limit == 1, "it finished after the new placement"


def test_audit_is_limited_to_one_owner(worker: Registration) -> None:
    mine, theirs = make_job(name="mine", max_concurrency=1), make_job(name="theirs", max_concurrency=2)
    for _ in range(2):
        run(worker, theirs)
    JobVersion.objects.filter(job=theirs).update(max_concurrency=1)
    run(worker, mine)
    assert audit(owner_id=mine.owner_id).attempts == (3 if mine.owner_id == theirs.owner_id else 1)
    assert audit(job_id=mine.id).clean
    assert not audit(job_id=theirs.id).clean


def test_command_exits_with_1_on_a_violation(worker: Registration) -> None:
    execution = run(worker, make_job())
    out = StringIO()
    since = (datetime.now(UTC) - HOUR).isoformat()
    call_command("audit_attempts", "--from", since, stdout=out)
    assert out.getvalue().endswith("Clean.\n")
    Execution.objects.filter(id=execution.id).update(
        state="ready", worker=None, incarnation=None, ready_at=datetime.now(UTC)
    )
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("audit_attempts", "--from", since, "--json", stdout=out)
    assert ended.value.code == 1
    assert json.loads(out.getvalue())["never_ended"] == 1
