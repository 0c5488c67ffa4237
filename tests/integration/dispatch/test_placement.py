"""Placement: who is placed, in which order, within all limits, as seen in the database after a pass."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from jobs.dispatch import pool_plan
from jobs.dispatch.placement import place_ready_executions
from jobs.dispatch.placement_inputs import RankPosition, Scan, scan_ready_executions
from jobs.domain import limits
from jobs.domain.messages import Publication
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import RunReport
from jobs.execution import transitions
from jobs.execution.attempts import finish_attempt
from jobs.execution.transitions import NewExecution, Placement
from jobs.fleet import leases
from jobs.models import Execution, Queue, Trigger, Worker
from tests.support.factories import claim_on, hold_of, make_execution, make_job, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db


def offer(resource: str, amount: int) -> dict[str, Any]:
    return {resource: amount}


def placed() -> list[UUID]:
    return list(Execution.objects.filter(state="queued").order_by("placed_at", "rank").values_list("id", flat=True))


def test_ready_execution_is_queued_on_the_worker() -> None:
    worker, execution = make_worker(), make_execution()
    result = place_ready_executions()
    assert (result.placed, result.contended, result.full) == (1, False, False)
    execution.refresh_from_db()
    assert (execution.state, execution.attempt) == ("queued", 1)
    assert (execution.worker_id, execution.incarnation) == (worker.worker_id, worker.incarnation)
    assert execution.placed_at is not None
    assert execution.published_at == execution.placed_at, "the beat that places it sends its message"
    assert (execution.claimed_at, execution.started_at) == (None, None)
    assert result.publications == (Publication(execution.id, 1, worker.worker_id, execution.job.name),)


def test_execution_waits_without_a_worker() -> None:
    execution = make_execution()
    assert place_ready_executions().placed == 0
    execution.refresh_from_db()
    assert (execution.state, execution.attempt) == ("ready", 0)


def test_higher_priority_goes_first_although_it_came_later() -> None:
    low, high = make_execution(job=make_job(priority=1)), make_execution(job=make_job(priority=8))
    make_worker(slots=1)
    place_ready_executions()
    assert placed() == [high.id]
    assert low.rank > high.rank


def test_aging_beats_priority() -> None:
    """Eight steps of 60 s: nine minutes of waiting outrank the highest priority."""
    low = make_execution(job=make_job(priority=1))
    Execution.objects.filter(id=low.id).update(rank=low.rank - timedelta(minutes=9))
    make_execution(job=make_job(priority=9))
    make_worker(slots=1)
    place_ready_executions()
    assert placed() == [low.id]


def test_queue_priority_adds_to_job_priority() -> None:
    urgent = Queue.objects.create(name="urgent", priority=5)
    make_execution(job=make_job(priority=5))
    preferred = make_execution(job=make_job(priority=5, queue=urgent))
    make_worker(slots=1)
    place_ready_executions()
    assert placed() == [preferred.id]


def test_job_at_its_limit_does_not_block_others() -> None:
    worker = make_worker()
    crowd = make_job(priority=9, max_concurrency=2)
    claim_on(worker, make_execution(job=crowd))
    waiting = [make_execution(job=crowd) for _ in range(5)]
    other = make_execution(job=make_job(priority=0))
    assert place_ready_executions(limit=2).placed == 2
    assert set(placed()) == {waiting[0].id, other.id}
    assert place_ready_executions().placed == 0


def test_job_without_a_limit() -> None:
    make_worker()
    job = make_job(max_concurrency=None)
    for _ in range(5):
        make_execution(job=job)
    assert place_ready_executions().placed == 5


def test_queue_at_its_limit_does_not_block_others() -> None:
    worker = make_worker()
    narrow = Queue.objects.create(name="narrow", max_concurrency=2)
    run_on(worker, make_execution(job=make_job(queue=narrow)))
    waiting = [make_execution(job=make_job(priority=9, queue=narrow)) for _ in range(4)]
    other = make_execution(job=make_job(priority=0))
    assert place_ready_executions(limit=2).placed == 2
    assert set(placed()) == {waiting[0].id, other.id}


def test_waiting_executions_do_not_use_up_the_queue_limit() -> None:
    make_worker()
    narrow = Queue.objects.create(name="narrow", max_concurrency=2)
    single = make_job(queue=narrow, priority=9, max_concurrency=1)
    first, *_ = [make_execution(job=single) for _ in range(3)]
    other = make_execution(job=make_job(queue=narrow, priority=0))
    place_ready_executions()
    assert set(placed()) == {first.id, other.id}


def test_paused_queue_places_nothing_until_resumed() -> None:
    make_worker()
    queue = Queue.objects.create(name="resting", paused=True)
    execution = make_execution(job=make_job(queue=queue))
    assert place_ready_executions().placed == 0
    Queue.objects.update(paused=False)
    place_ready_executions()
    assert placed() == [execution.id]


def test_pools_are_separate() -> None:
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
def test_worker_without_the_capability_gets_nothing(wants: dict[str, Any], offers: list[str]) -> None:
    make_worker(capabilities=offers)
    make_execution(job=make_job(**wants))
    assert place_ready_executions().placed == 0


def test_runtime_and_capabilities_are_required_and_sufficient() -> None:
    make_worker(capabilities=["node"])
    able = make_worker(capabilities=["bash", "gpu", "node"])
    execution = make_execution(job=make_job(runtime="node", capabilities=["gpu"]))
    place_ready_executions()
    assert hold_of(execution).worker_id == able.worker_id


@pytest.mark.parametrize("wants", [{"capabilities": ["nobody-has-it"]}, {"cpu": 1000.0}, {"memory_mb": 10**8}])
def test_impossible_execution_does_not_block_others(wants: dict[str, Any]) -> None:
    make_worker()
    for _ in range(3):
        make_execution(job=make_job(priority=9, **wants))
    runnable = make_execution(job=make_job(priority=0))
    assert place_ready_executions(limit=2).placed == 1
    assert placed() == [runnable.id]


@pytest.mark.parametrize("resource", ["cpu", "memory_mb", "disk_mb"])
def test_capacity_is_used_exactly(resource: str) -> None:
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


def test_slots_limit_the_number_of_executions() -> None:
    make_worker(slots=2)
    for _ in range(3):
        make_execution()
    assert place_ready_executions().placed == 2


@pytest.mark.parametrize("state", ["queued", "claimed", "running"])
def test_active_executions_use_capacity_and_finished_ones_do_not(state: str) -> None:
    worker = make_worker(slots=1)
    hold = {"queued": place_on, "claimed": claim_on, "running": run_on}[state](worker, make_execution())
    make_execution()
    assert place_ready_executions().placed == 0
    if state == "running":
        finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0))
        assert place_ready_executions().placed == 1


def test_best_fit_leaves_the_large_worker_free() -> None:
    make_worker(cpu=8)
    small = make_worker(cpu=1)
    execution = make_execution(job=make_job(cpu=1))
    place_ready_executions()
    assert hold_of(execution).worker_id == small.worker_id


def test_custom_resources_are_used_exactly() -> None:
    make_worker()
    able = make_worker(resources={"gpu": 2, "licence": 9})
    run_on(able, make_execution(job=make_job(resources={"gpu": 1})))
    waiting = [make_execution(job=make_job(resources={"gpu": 1, "licence": 3})) for _ in range(2)]
    assert place_ready_executions().placed == 1
    assert hold_of(waiting[0]).worker_id == able.worker_id
    assert place_ready_executions().placed == 0


def test_unknown_resource_does_not_block_others() -> None:
    make_worker(resources={"gpu": 1})
    for needs in ({"gpu": 2}, {"licence": 1}):
        make_execution(job=make_job(priority=9, resources=needs))
    runnable = make_execution(job=make_job(priority=0))
    assert place_ready_executions(limit=1).placed == 1
    assert placed() == [runnable.id]


def test_worker_is_reserved_for_an_overdue_execution() -> None:
    worker = make_worker(cpu=4.0)
    hold = run_on(worker, make_execution(job=make_job(cpu=2.0)))
    large = make_execution(job=make_job(cpu=3.0))
    make_execution(job=make_job(cpu=1.0))
    assert place_ready_executions().placed == 1, "at first a small one overtakes it"
    small = make_execution(job=make_job(cpu=1.0))
    Execution.objects.filter(id=large.id).update(
        ready_at=datetime.now(UTC) - timedelta(seconds=limits.RESERVE_AFTER_SECONDS + 1)
    )
    assert place_ready_executions().placed == 0
    finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0))
    place_ready_executions()
    assert {large.id, small.id} & set(placed()) == {large.id}


def test_full_worker_can_be_reserved() -> None:
    full, other = make_worker(slots=1, cpu=8.0), make_worker(slots=9, cpu=1.0)
    run_on(full, make_execution(job=make_job(cpu=8.0)))
    large = make_execution(job=make_job(cpu=8.0))
    Execution.objects.filter(id=large.id).update(
        ready_at=datetime.now(UTC) - timedelta(seconds=limits.RESERVE_AFTER_SECONDS + 1)
    )
    small = make_execution(job=make_job(cpu=1.0))
    assert place_ready_executions().placed == 1
    assert hold_of(small).worker_id == other.worker_id


def test_execution_pinned_to_an_absent_worker_blocks_nothing() -> None:
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
def test_worker_that_is_not_online_gets_nothing(status: str) -> None:
    make_worker()
    Worker.objects.update(status=status)
    make_execution()
    assert place_ready_executions().placed == 0


def test_worker_with_an_ended_lease_gets_nothing_before_it_is_reaped() -> None:
    make_worker()
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    make_execution()
    assert place_ready_executions().placed == 0


def test_draining_worker_keeps_its_executions() -> None:
    worker = make_worker()
    hold = run_on(worker, make_execution())
    leases.drain_worker(worker)
    make_execution()
    assert place_ready_executions().placed == 0
    assert finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0)).state == "succeeded"


def test_registration_after_the_plan_voids_the_placement() -> None:
    old = make_worker(name="twice")
    make_worker(name="twice")
    execution = make_execution()
    assert not transitions.place([Placement(execution.id, old.worker_id, old.incarnation)])
    execution.refresh_from_db()
    assert (execution.state, execution.attempt) == ("ready", 0)


def test_pass_is_bounded() -> None:
    make_worker()
    for _ in range(3):
        make_execution()
    assert place_ready_executions(limit=2).placed == 2
    assert limits.PLACE_BATCH_EXECUTIONS >= 100


def test_backlog_that_does_not_fit_blocks_nothing() -> None:
    worker = make_worker(slots=2, cpu=4.0)
    run_on(worker, make_execution(job=make_job(cpu=3.0)))
    for _ in range(20):
        make_execution(job=make_job(cpu=2.0))
    small = make_execution(job=make_job(cpu=1.0))
    assert place_ready_executions().placed == 1
    assert placed() == [small.id]


def test_pass_reads_no_more_than_capacity_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    scan_limits: list[int] = []

    def read(pool: str, limit: int, after: RankPosition, **options: Any) -> Scan:
        scan_limits.append(limit)
        return scan_ready_executions(pool, limit, after, **options)

    monkeypatch.setattr(pool_plan, "scan_ready_executions", read)
    make_worker(slots=2)
    job = make_job(max_concurrency=None)
    transitions.create_executions([NewExecution(job.id, Trigger.MANUAL) for _ in range(100)])
    first = place_ready_executions()
    assert (first.placed, first.full) == (2, True)
    second = place_ready_executions()
    assert (second.placed, second.full) == (0, True)
    assert scan_limits == [pool_plan.FIRST_SCAN_EXECUTIONS] * 2
    make_worker(slots=50)
    assert place_ready_executions().placed == 50
    assert scan_limits[3] >= 50
    assert len(scan_limits) == 4
