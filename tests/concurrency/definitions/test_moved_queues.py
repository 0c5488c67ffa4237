"""Moving a job or its queue to another pool moves waiting executions, and no limit is exceeded meanwhile."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction

from jobs.db.locks import placement_lock_name
from jobs.db.transactions import with_timeouts
from jobs.definitions.editing import edit_job
from jobs.definitions.lifecycle import execute_job
from jobs.dispatch import queues
from jobs.dispatch.placement import place_ready_executions
from jobs.dispatch.pool_plan import PassLimits, PoolPlan
from jobs.domain.errors import InvalidInput
from jobs.domain.job_edit import JobEdit
from jobs.domain.states import ACTIVE, Reason, State, sorted_values
from jobs.domain.worker_protocol import Registration, RunReport
from jobs.execution import transitions
from jobs.execution.attempts import finish_attempt
from jobs.execution.transitions import Placement
from jobs.fleet import leases
from jobs.models import Execution, Job, Queue
from tests.support.barriers import beside
from tests.support.factories import make_execution, make_job, make_worker, run_on

pytestmark = pytest.mark.django_db(transaction=True)

MOVED = JobEdit(queue="new", priority=0)


@pytest.fixture
def workers() -> dict[str, Registration]:
    Queue.objects.create(name="old", pool="left")
    Queue.objects.create(name="new", pool="right", priority=2, aging_seconds=10)
    return {pool: make_worker(pool=pool) for pool in ("left", "right")}


@pytest.fixture
def job(workers: dict[str, Registration]) -> Job:
    retry = {"max_attempts": 3, "backoff_seconds": 0.001}
    return make_job(queue=Queue.objects.get(name="old"), max_concurrency=1, priority=9, retry=retry)


def queue_name(execution: Execution) -> str:
    execution.refresh_from_db()
    return execution.queue.name


def active() -> int:
    return Execution.objects.filter(state__in=sorted_values(ACTIVE)).count()


@pytest.mark.parametrize("state", [State.READY, State.BLOCKED])
def test_waiting_executions_move_and_are_ranked_by_the_new_queue(job: Job, state: State) -> None:
    execution = make_execution(job=job, state=state)
    other = make_execution(job=make_job(queue=Queue.objects.get(name="old")))
    edit_job(job.id, MOVED)
    assert (queue_name(execution), queue_name(other)) == ("new", "old")
    since = execution.ready_at or execution.fired_at
    assert (since - execution.rank).total_seconds() == pytest.approx((2 + 9) * 10, abs=0.001)
    assert execution.version.number == 1, "it keeps the version in force when it fired"


def test_retry_from_the_old_queue_respects_the_limit_in_the_new_one(job: Job, workers: dict[str, Registration]) -> None:
    """After its backoff it comes first, which a placement pass of the other pool could not see."""
    first = make_execution(job=job)
    finish_attempt(run_on(workers["left"], first), RunReport(Reason.EXIT, exit_code=1))
    edit_job(job.id, MOVED)
    make_execution(job=job)

    def wake_and_place() -> None:
        assert transitions.wake_backed_off() == 1
        place_ready_executions()

    beside(partial(place_ready_executions, pools=["right"]), wake_and_place)
    place_ready_executions()
    assert active() == 1


def test_running_execution_counts_in_the_new_pool_and_moves_when_retried(
    job: Job, workers: dict[str, Registration]
) -> None:
    first = make_execution(job=job)
    fence = run_on(workers["left"], first)
    edit_job(job.id, MOVED)
    assert queue_name(first) == "old", "it counts in its old queue while it runs there"
    make_execution(job=job)
    assert place_ready_executions().placed == 0
    finish_attempt(fence, RunReport(Reason.EXIT, exit_code=1))
    assert queue_name(first) == "new"


@pytest.mark.parametrize("how", ["lost", "unclaimed", "drained"])
def test_reclaimed_execution_moves_to_the_new_queue(
    job: Job, workers: dict[str, Registration], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution, worker = make_execution(job=job), workers["left"]
    transitions.place([Placement(execution.id, worker.worker_id, worker.incarnation)])
    edit_job(job.id, MOVED)
    if how == "lost":
        with transaction.atomic():
            transitions.lose_executions({worker.worker_id: None})
    elif how == "drained":
        leases.drain_worker(worker)
    else:
        monkeypatch.setattr("jobs.domain.limits.UNCLAIMED_TIMEOUT_SECONDS", 0.0)
        assert transitions.return_unclaimed() == 1
    assert (queue_name(execution), execution.state) == ("new", "ready")


def test_execution_retried_during_a_move_follows(job: Job, workers: dict[str, Registration]) -> None:
    execution = make_execution(job=job)
    fence = run_on(workers["left"], execution)
    fail = partial(finish_attempt, fence, RunReport(Reason.EXIT, exit_code=1))
    beside(partial(edit_job, job.id, MOVED), fail)
    assert (queue_name(execution), execution.state) == ("new", "backing_off")


def test_move_during_a_retry_takes_the_execution_along(job: Job, workers: dict[str, Registration]) -> None:
    execution = make_execution(job=job)
    fence = run_on(workers["left"], execution)
    fail = partial(finish_attempt, fence, RunReport(Reason.EXIT, exit_code=1))
    beside(fail, partial(edit_job, job.id, MOVED))
    assert (queue_name(execution), execution.state) == ("new", "backing_off")


@pytest.mark.parametrize("moved", ["job", "queue"])
def test_move_waits_for_a_placement_pass(job: Job, workers: dict[str, Registration], moved: str) -> None:
    execution, queue = make_execution(job=job), Queue.objects.get(name="old")
    queue.pool = "right"
    planned: list[Placement] = []

    def read() -> None:
        with with_timeouts(statement_seconds=60, lock_name=placement_lock_name("left")) as ours:
            assert ours
            passed = PoolPlan("left", PassLimits())
            passed.run()
            planned.extend(Placement(a.execution_id, a.worker_id, a.incarnation) for a in passed.result.placements)

    def move() -> None:
        if moved == "job":
            edit_job(job.id, MOVED)
        else:
            queues.save_queue(queue, changed=["pool"])
        # An execution that ranks before it, which only a pass of the new pool sees.
        make_execution(job=job)
        Execution.objects.exclude(id=execution.id).update(rank=execution.rank - timedelta(hours=1))
        place_ready_executions()

    beside(read, move, then=lambda: transitions.place(planned))
    assert [assignment.execution_id for assignment in planned] == [execution.id]
    assert active() == 1
    place_ready_executions()
    assert active() == 1


def test_job_with_a_pinned_execution_cannot_leave_the_pool(job: Job, workers: dict[str, Registration]) -> None:
    pinned = execute_job(job.id, worker_id=workers["left"].worker_id)
    with pytest.raises(InvalidInput) as refused:
        edit_job(job.id, MOVED)
    assert refused.value.field == "queue"
    execution = Execution.objects.get(id=pinned)
    assert (queue_name(execution), Job.objects.get(id=job.id).current_version) == ("old", job.current_version)


def move_queue() -> str | None:
    """Move the queue to the other pool; return the field of the error if it is refused."""
    queue = Queue.objects.get(name="old")
    queue.pool = "right"
    try:
        queues.save_queue(queue, changed=["pool"])
    except InvalidInput as refused:
        return refused.field
    return None


def pin(job: Job, worker: Registration) -> str | None:
    try:
        execute_job(job.id, worker_id=worker.worker_id)
    except InvalidInput as refused:
        return refused.field
    return None


def test_queue_with_a_pinned_execution_cannot_leave_the_pool(job: Job, workers: dict[str, Registration]) -> None:
    make_execution(job=job)
    assert beside(partial(pin, job, workers["left"]), move_queue) == "pool", "the later transaction sees the pin"
    assert Queue.objects.get(name="old").pool == "left"
    Execution.objects.exclude(pinned_worker=None).delete()
    assert move_queue() is None


def test_execution_cannot_be_pinned_to_a_pool_that_its_queue_is_leaving(
    job: Job, workers: dict[str, Registration]
) -> None:
    assert beside(move_queue, partial(pin, job, workers["left"])) == "worker_id"
    assert not Execution.objects.exists()


def test_queue_edit_keeps_concurrent_changes_of_other_fields() -> None:
    queue = Queue.objects.create(name="old")
    queue.priority = 3
    queues.pause_queues([queue.id])
    queues.save_queue(queue, changed=["priority"])
    queue.refresh_from_db()
    assert (queue.priority, queue.paused) == (3, True)
