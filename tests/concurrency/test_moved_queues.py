"""A job, or its queue, is moved to another pool: what waits goes along, and no limit is passed while it does."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction

from jobs.errors import InvalidInput
from jobs.models import Execution, Job, Queue
from jobs.protocol import Registration, Report
from jobs.services import leases, placement, queues, transitions
from jobs.services.attempts import finish_attempt
from jobs.services.commands import execute_job
from jobs.services.database import bounded
from jobs.services.editing import edit_job
from jobs.services.job_edit import JobEdit
from jobs.services.locking import placement_lock
from jobs.services.placement import place_ready_executions
from jobs.services.transitions import Assignment
from jobs.states import ACTIVE, Reason, State, values
from tests.concurrency.connections import beside
from tests.factories import make_execution, make_job, make_worker, run_on

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


def where(execution: Execution) -> str:
    execution.refresh_from_db()
    return execution.queue.name


def active() -> int:
    return Execution.objects.filter(state__in=values(ACTIVE)).count()


@pytest.mark.parametrize("state", [State.READY, State.BLOCKED])
def test_what_waits_goes_along_ranked_by_its_new_queue(job: Job, state: State) -> None:
    execution = make_execution(job=job, state=state)
    other = make_execution(job=make_job(queue=Queue.objects.get(name="old")))
    edit_job(job.id, MOVED)
    assert (where(execution), where(other)) == ("new", "old")
    since = execution.ready_at or execution.fired_at
    assert (since - execution.rank).total_seconds() == pytest.approx((2 + 9) * 10, abs=0.001)
    assert execution.version.number == 1, "it runs what was in force when it fired"


def test_what_backs_off_in_the_old_queue_does_not_pass_the_limit_in_the_new_one(
    job: Job, workers: dict[str, Registration]
) -> None:
    """Fresh from its wait it comes first, which a pass of the other pool could not see."""
    first = make_execution(job=job)
    finish_attempt(run_on(workers["left"], first), Report(Reason.EXIT, exit_code=1))
    edit_job(job.id, MOVED)
    make_execution(job=job)

    def wake_and_place() -> None:
        assert transitions.wake_backed_off() == 1
        place_ready_executions()

    beside(partial(placement._place_pool, "right", 10), wake_and_place)
    place_ready_executions()
    assert active() == 1


def test_what_runs_is_counted_in_the_new_pool_and_follows_when_it_is_to_run_again(
    job: Job, workers: dict[str, Registration]
) -> None:
    first = make_execution(job=job)
    hold = run_on(workers["left"], first)
    edit_job(job.id, MOVED)
    assert where(first) == "old", "its old queue's limit counts it while it runs there"
    make_execution(job=job)
    assert place_ready_executions().placed == 0
    finish_attempt(hold, Report(Reason.EXIT, exit_code=1))
    assert where(first) == "new"


@pytest.mark.parametrize("how", ["lost", "unclaimed", "drained"])
def test_what_is_taken_back_follows_too(
    job: Job, workers: dict[str, Registration], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution, worker = make_execution(job=job), workers["left"]
    transitions.place([Assignment(execution.id, worker.worker_id, worker.incarnation)])
    edit_job(job.id, MOVED)
    if how == "lost":
        with transaction.atomic():
            transitions.lose_held({worker.worker_id: None})
    elif how == "drained":
        leases.drain_worker(worker)
    else:
        monkeypatch.setattr("jobs.conf.UNCLAIMED_SECONDS", 0.0)
        assert transitions.return_unclaimed() == 1
    assert (where(execution), execution.state) == ("new", "ready")


def test_what_runs_again_while_its_job_is_moved_follows(job: Job, workers: dict[str, Registration]) -> None:
    execution = make_execution(job=job)
    hold = run_on(workers["left"], execution)
    fail = partial(finish_attempt, hold, Report(Reason.EXIT, exit_code=1))
    beside(partial(edit_job, job.id, MOVED), fail)
    assert (where(execution), execution.state) == ("new", "backing_off")


def test_a_job_moved_while_its_execution_comes_back_takes_it_along(job: Job, workers: dict[str, Registration]) -> None:
    execution = make_execution(job=job)
    hold = run_on(workers["left"], execution)
    fail = partial(finish_attempt, hold, Report(Reason.EXIT, exit_code=1))
    beside(fail, partial(edit_job, job.id, MOVED))
    assert (where(execution), execution.state) == ("new", "backing_off")


@pytest.mark.parametrize("moved", ["job", "queue"])
def test_a_pass_that_has_read_and_not_placed_yet_is_waited_for(
    job: Job, workers: dict[str, Registration], moved: str
) -> None:
    execution, queue = make_execution(job=job), Queue.objects.get(name="old")
    queue.pool = "right"
    planned: list[Assignment] = []

    def read() -> None:
        with bounded(statement_seconds=60, only_with=placement_lock("left")) as ours:
            assert ours
            made, _ = placement._plan_pool("left", 10)
            planned.extend(Assignment(a.execution_id, a.worker_id, a.incarnation) for a in made.assignments)

    def move() -> None:
        if moved == "job":
            edit_job(job.id, MOVED)
        else:
            queues.save_queue(queue, changed=["pool"])
        # With an execution that comes before it, which only a pass of the new pool sees.
        make_execution(job=job)
        Execution.objects.exclude(id=execution.id).update(rank=execution.rank - timedelta(hours=1))
        place_ready_executions()

    beside(read, move, then=lambda: transitions.place(planned))
    assert [assignment.execution_id for assignment in planned] == [execution.id]
    assert active() == 1
    place_ready_executions()
    assert active() == 1


def test_a_worker_that_does_not_serve_the_new_queue_keeps_its_job(job: Job, workers: dict[str, Registration]) -> None:
    pinned = execute_job(job.id, worker_id=workers["left"].worker_id)
    with pytest.raises(InvalidInput) as refused:
        edit_job(job.id, MOVED)
    assert refused.value.field == "queue"
    execution = Execution.objects.get(id=pinned)
    assert (where(execution), Job.objects.get(id=job.id).current_version) == ("old", job.current_version)


def move_queue() -> str | None:
    """To the other pool; the field that is named if it is refused."""
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


def test_a_queue_is_not_moved_away_from_a_worker_that_one_of_its_executions_is_bound_to(
    job: Job, workers: dict[str, Registration]
) -> None:
    make_execution(job=job)
    assert beside(partial(pin, job, workers["left"]), move_queue) == "pool", "whoever waits sees it"
    assert Queue.objects.get(name="old").pool == "left"
    Execution.objects.exclude(pinned_worker=None).delete()
    assert move_queue() is None


def test_nothing_is_bound_to_a_worker_of_the_pool_that_the_queue_is_just_leaving(
    job: Job, workers: dict[str, Registration]
) -> None:
    assert beside(move_queue, partial(pin, job, workers["left"])) == "worker_id"
    assert not Execution.objects.exists()


def test_an_edit_of_a_queue_leaves_alone_what_somebody_else_changed_meanwhile() -> None:
    queue = Queue.objects.create(name="old")
    queue.priority = 3
    queues.pause_queues([queue.id])
    queues.save_queue(queue, changed=["priority"])
    queue.refresh_from_db()
    assert (queue.priority, queue.paused) == (3, True)
