"""Who gets a place, in which order, and that no limit is passed: seen in the database after a pass."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from jobs import conf
from jobs.messages import Publication
from jobs.models import Execution, Queue, Trigger, Worker
from jobs.planning import Demand
from jobs.protocol import Report
from jobs.services import leases, placement, transitions
from jobs.services.attempts import finish_attempt
from jobs.services.demands import read_ready
from jobs.services.owner_limits import LimitedOwner
from jobs.services.placement import place_ready_executions
from jobs.services.transitions import Assignment, NewExecution
from jobs.states import Reason
from tests.factories import claim_on, hold_of, make_execution, make_job, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db


def offer(resource: str, amount: int) -> dict[str, Any]:
    return {resource: amount}


def placed() -> list[UUID]:
    return list(Execution.objects.filter(state="queued").order_by("placed_at", "rank").values_list("id", flat=True))


def test_a_ready_execution_is_queued_on_the_worker() -> None:
    worker, execution = make_worker(), make_execution()
    result = place_ready_executions()
    assert (result.placed, result.contended, result.full) == (1, False, False)
    execution.refresh_from_db()
    assert (execution.state, execution.attempt) == ("queued", 1)
    assert (execution.worker_id, execution.incarnation) == (worker.worker_id, worker.incarnation)
    assert execution.placed_at is not None
    assert execution.published_at == execution.placed_at, "who places it sends its message"
    assert (execution.claimed_at, execution.started_at) == (None, None)
    assert result.publications == (Publication(execution.id, 1, worker.worker_id, execution.job.name),)


def test_without_a_worker_it_waits() -> None:
    execution = make_execution()
    assert place_ready_executions().placed == 0
    execution.refresh_from_db()
    assert (execution.state, execution.attempt) == ("ready", 0)


def test_the_higher_priority_goes_first_though_it_came_later() -> None:
    low, high = make_execution(job=make_job(priority=1)), make_execution(job=make_job(priority=8))
    make_worker(slots=1)
    place_ready_executions()
    assert placed() == [high.id]
    assert low.rank > high.rank


def test_waiting_long_enough_beats_priority() -> None:
    """Eight steps of 60 s: who has waited nine minutes comes before a fresh one of the highest priority."""
    low = make_execution(job=make_job(priority=1))
    Execution.objects.filter(id=low.id).update(rank=low.rank - timedelta(minutes=9))
    make_execution(job=make_job(priority=9))
    make_worker(slots=1)
    place_ready_executions()
    assert placed() == [low.id]


def test_a_queues_priority_adds_to_that_of_its_jobs() -> None:
    urgent = Queue.objects.create(name="urgent", priority=5)
    make_execution(job=make_job(priority=5))
    preferred = make_execution(job=make_job(priority=5, queue=urgent))
    make_worker(slots=1)
    place_ready_executions()
    assert placed() == [preferred.id]


def test_a_job_at_its_limit_waits_and_does_not_hide_others_behind_it() -> None:
    worker = make_worker()
    crowd = make_job(priority=9, max_concurrency=2)
    claim_on(worker, make_execution(job=crowd))
    waiting = [make_execution(job=crowd) for _ in range(5)]
    other = make_execution(job=make_job(priority=0))
    assert place_ready_executions(limit=2).placed == 2
    assert set(placed()) == {waiting[0].id, other.id}
    assert place_ready_executions().placed == 0


def test_a_job_without_a_limit_has_none() -> None:
    make_worker()
    job = make_job(max_concurrency=None)
    for _ in range(5):
        make_execution(job=job)
    assert place_ready_executions().placed == 5


def test_a_queue_at_its_limit_waits_and_does_not_hide_others_behind_it() -> None:
    worker = make_worker()
    narrow = Queue.objects.create(name="narrow", max_concurrency=2)
    run_on(worker, make_execution(job=make_job(queue=narrow)))
    waiting = [make_execution(job=make_job(priority=9, queue=narrow)) for _ in range(4)]
    other = make_execution(job=make_job(priority=0))
    assert place_ready_executions(limit=2).placed == 2
    assert set(placed()) == {waiting[0].id, other.id}


def test_a_jobs_waiting_executions_do_not_use_up_its_queues_limit() -> None:
    make_worker()
    narrow = Queue.objects.create(name="narrow", max_concurrency=2)
    single = make_job(queue=narrow, priority=9, max_concurrency=1)
    first, *_ = [make_execution(job=single) for _ in range(3)]
    other = make_execution(job=make_job(queue=narrow, priority=0))
    place_ready_executions()
    assert set(placed()) == {first.id, other.id}


def test_a_paused_queue_gets_nothing_until_it_goes_on() -> None:
    make_worker()
    queue = Queue.objects.create(name="resting", paused=True)
    execution = make_execution(job=make_job(queue=queue))
    assert place_ready_executions().placed == 0
    Queue.objects.update(paused=False)
    place_ready_executions()
    assert placed() == [execution.id]


def test_pools_are_apart() -> None:
    Queue.objects.create(name="gpu-work", pool="gpu")
    make_worker()
    execution = make_execution(job=make_job(queue=Queue.objects.get(name="gpu-work")))
    assert place_ready_executions().placed == 0
    gpu = make_worker(pool="gpu")
    place_ready_executions()
    assert hold_of(execution).worker_id == gpu.worker_id


@pytest.mark.parametrize(
    ("wants", "offers"),
    [({"runtime": "node"}, ["bash"]), ({"capabilities": ["gpu", "ssd"]}, ["bash", "gpu"])],
)
def test_a_worker_that_lacks_a_capability_gets_nothing(wants: dict[str, Any], offers: list[str]) -> None:
    make_worker(capabilities=offers)
    make_execution(job=make_job(**wants))
    assert place_ready_executions().placed == 0


def test_runtime_and_capabilities_are_both_needed_and_enough() -> None:
    make_worker(capabilities=["node"])
    able = make_worker(capabilities=["bash", "gpu", "node"])
    execution = make_execution(job=make_job(runtime="node", capabilities=["gpu"]))
    place_ready_executions()
    assert hold_of(execution).worker_id == able.worker_id


@pytest.mark.parametrize("wants", [{"capabilities": ["nobody-has-it"]}, {"cpu": 1000.0}, {"memory_mb": 10**8}])
def test_what_no_worker_could_ever_take_does_not_hide_what_one_can(wants: dict[str, Any]) -> None:
    make_worker()
    for _ in range(3):
        make_execution(job=make_job(priority=9, **wants))
    runnable = make_execution(job=make_job(priority=0))
    assert place_ready_executions(limit=2).placed == 1
    assert placed() == [runnable.id]


@pytest.mark.parametrize("resource", ["cpu", "memory_mb", "disk_mb"])
def test_capacity_is_used_to_the_last_bit_and_not_beyond(resource: str) -> None:
    make_worker(**offer(resource, 3))
    for _ in range(4):
        make_execution(job=make_job(**offer(resource, 1)))
    assert place_ready_executions().placed == 3
    assert place_ready_executions().placed == 0


def test_fractions_of_a_cpu_add_up() -> None:
    make_worker(cpu=1.0)
    for _ in range(12):
        make_execution(job=make_job(cpu=0.1))
    assert sum(place_ready_executions(limit=3).placed for _ in range(5)) == 10


def test_slots_are_the_limit_of_how_many() -> None:
    make_worker(slots=2)
    for _ in range(3):
        make_execution()
    assert place_ready_executions().placed == 2


@pytest.mark.parametrize("state", ["queued", "claimed", "running"])
def test_whatever_a_worker_holds_counts_and_what_ended_does_not(state: str) -> None:
    worker = make_worker(slots=1)
    hold = {"queued": place_on, "claimed": claim_on, "running": run_on}[state](worker, make_execution())
    make_execution()
    assert place_ready_executions().placed == 0
    if state == "running":
        finish_attempt(hold, Report(Reason.EXIT, exit_code=0))
        assert place_ready_executions().placed == 1


def test_best_fit_leaves_the_large_worker_free() -> None:
    make_worker(cpu=8)
    small = make_worker(cpu=1)
    execution = make_execution(job=make_job(cpu=1))
    place_ready_executions()
    assert hold_of(execution).worker_id == small.worker_id


def test_whatever_a_worker_counts_is_used_to_the_last_one_and_not_beyond() -> None:
    make_worker()
    able = make_worker(resources={"gpu": 2, "licence": 9})
    run_on(able, make_execution(job=make_job(resources={"gpu": 1})))
    waiting = [make_execution(job=make_job(resources={"gpu": 1, "licence": 3})) for _ in range(2)]
    assert place_ready_executions().placed == 1
    assert hold_of(waiting[0]).worker_id == able.worker_id
    assert place_ready_executions().placed == 0


def test_what_no_worker_counts_does_not_hide_what_can_run() -> None:
    make_worker(resources={"gpu": 1})
    for needs in ({"gpu": 2}, {"licence": 1}):
        make_execution(job=make_job(priority=9, resources=needs))
    runnable = make_execution(job=make_job(priority=0))
    assert place_ready_executions(limit=1).placed == 1
    assert placed() == [runnable.id]


def test_what_waits_too_long_has_a_worker_kept_for_it() -> None:
    worker = make_worker(cpu=4.0)
    hold = run_on(worker, make_execution(job=make_job(cpu=2.0)))
    large = make_execution(job=make_job(cpu=3.0))
    make_execution(job=make_job(cpu=1.0))
    assert place_ready_executions().placed == 1, "at first a small one goes past it"
    small = make_execution(job=make_job(cpu=1.0))
    Execution.objects.filter(id=large.id).update(
        ready_at=datetime.now(UTC) - timedelta(seconds=conf.RESERVE_AFTER_SECONDS + 1)
    )
    assert place_ready_executions().placed == 0
    finish_attempt(hold, Report(Reason.EXIT, exit_code=0))
    place_ready_executions()
    assert {large.id, small.id} & set(placed()) == {large.id}


def test_even_a_worker_without_a_free_slot_is_kept() -> None:
    full, other = make_worker(slots=1, cpu=8.0), make_worker(slots=9, cpu=1.0)
    run_on(full, make_execution(job=make_job(cpu=8.0)))
    large = make_execution(job=make_job(cpu=8.0))
    Execution.objects.filter(id=large.id).update(
        ready_at=datetime.now(UTC) - timedelta(seconds=conf.RESERVE_AFTER_SECONDS + 1)
    )
    small = make_execution(job=make_job(cpu=1.0))
    assert place_ready_executions().placed == 1
    assert hold_of(small).worker_id == other.worker_id


def test_what_is_pinned_to_a_worker_that_is_away_hides_nothing_and_runs_once_it_is_back() -> None:
    make_worker()
    away = make_worker(name="away")
    Worker.objects.filter(id=away.worker_id).update(status="offline")
    job = make_job(priority=9, max_concurrency=None)
    new = NewExecution(job.id, Trigger.MANUAL, pinned_worker_id=away.worker_id)
    pinned, _ = transitions.create_executions([new, new])
    other = make_execution(job=make_job(priority=0))
    assert place_ready_executions(limit=1).placed == 1
    assert placed() == [other.id]
    back = make_worker(name="away", slots=1)
    assert place_ready_executions().placed == 1
    assert hold_of(Execution.objects.get(id=pinned)).worker_id == back.worker_id


@pytest.mark.parametrize("status", ["suspect", "draining", "lost", "offline"])
def test_a_worker_that_is_not_online_gets_nothing(status: str) -> None:
    make_worker()
    Worker.objects.update(status=status)
    make_execution()
    assert place_ready_executions().placed == 0


def test_a_worker_whose_lease_ended_gets_nothing_though_nobody_reaped_it() -> None:
    make_worker()
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    make_execution()
    assert place_ready_executions().placed == 0


def test_draining_keeps_what_the_worker_has() -> None:
    worker = make_worker()
    hold = run_on(worker, make_execution())
    leases.drain_worker(worker)
    make_execution()
    assert place_ready_executions().placed == 0
    assert finish_attempt(hold, Report(Reason.EXIT, exit_code=0)).state == "succeeded"


def test_a_registration_after_the_plan_takes_its_place_away() -> None:
    old = make_worker(name="twice")
    make_worker(name="twice")
    execution = make_execution()
    assert not transitions.place([Assignment(execution.id, old.worker_id, old.incarnation)])
    execution.refresh_from_db()
    assert (execution.state, execution.attempt) == ("ready", 0)


def test_a_pass_is_bounded() -> None:
    make_worker()
    for _ in range(3):
        make_execution()
    assert place_ready_executions(limit=2).placed == 2
    assert conf.PLACE_BATCH_EXECUTIONS >= 100


def test_what_does_not_fit_now_does_not_hide_what_does_however_much_of_it_waits() -> None:
    worker = make_worker(slots=2, cpu=4.0)
    run_on(worker, make_execution(job=make_job(cpu=3.0)))
    for _ in range(20):
        make_execution(job=make_job(cpu=2.0))
    small = make_execution(job=make_job(cpu=1.0))
    assert place_ready_executions().placed == 1
    assert placed() == [small.id]


def test_a_pass_reads_no_more_than_there_may_be_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def read(pool: str, limit: int, limited: Mapping[int, LimitedOwner]) -> list[Demand]:
        looks.append(limit)
        return read_ready(pool, limit, limited)

    monkeypatch.setattr(placement, "read_ready", read)
    make_worker(slots=2)
    job = make_job(max_concurrency=None)
    transitions.create_executions([NewExecution(job.id, Trigger.MANUAL) for _ in range(100)])
    first = place_ready_executions()
    assert (first.placed, first.full) == (2, True)
    second = place_ready_executions()
    assert (second.placed, second.full) == (0, True)
    assert looks == [placement.FIRST_LOOK_EXECUTIONS] * 2
    make_worker(slots=50)
    assert place_ready_executions().placed == 50
    assert looks[3] >= 50
    assert len(looks) == 4
