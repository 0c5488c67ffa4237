"""Backlogs for a scarce resource or a limit block nothing that could run behind them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from jobs.definitions.editing import edit_job
from jobs.dispatch.placement import place_ready_executions
from jobs.dispatch.pool_plan import FIRST_SCAN_EXECUTIONS
from jobs.dispatch.scan_cursor import ScanProgress
from jobs.domain import limits
from jobs.domain.job_edit import JobEdit
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import RunReport
from jobs.execution import transitions
from jobs.execution.attempts import finish_attempt
from jobs.execution.transitions import NewExecution
from jobs.models import Execution, Queue, Trigger
from tests.support.factories import hold_of, make_execution, make_job, make_worker, run_on

pytestmark = pytest.mark.django_db


def placed() -> list[UUID]:
    return list(Execution.objects.filter(state="queued").order_by("placed_at", "rank").values_list("id", flat=True))


def crowd_for_a_busy_gpu(count: int, **version: Any) -> None:
    """Insert `count` executions that wait, ahead of all others, for the only GPU, which is in use."""
    able = make_worker(resources={"gpu": 1})
    run_on(able, make_execution(job=make_job(resources={"gpu": 1})))
    job = make_job(priority=9, max_concurrency=None, resources={"gpu": 1}, **version)
    transitions.create_executions([NewExecution(job.id, Trigger.MANUAL)] * count)


@pytest.mark.parametrize("count", [1, limits.PLACE_BATCH_EXECUTIONS + 100])
@pytest.mark.parametrize("waited", [0.0, limits.RESERVE_AFTER_SECONDS + 1])
def test_backlog_for_a_scarce_resource_blocks_no_queue(count: int, waited: float) -> None:
    crowd_for_a_busy_gpu(count)
    Execution.objects.filter(state="ready").update(ready_at=datetime.now(UTC) - timedelta(seconds=waited))
    elsewhere = Queue.objects.create(name="elsewhere")
    others = {make_execution(job=make_job(priority=0)).id, make_execution(job=make_job(priority=0, queue=elsewhere)).id}
    assert place_ready_executions().placed == 2
    assert set(placed()) == others


def test_backlog_for_a_busy_pinned_worker_blocks_nothing() -> None:
    make_worker()
    busy = make_worker(slots=1)
    run_on(busy, make_execution())
    job = make_job(priority=9, max_concurrency=None)
    pinned = NewExecution(job.id, Trigger.MANUAL, pinned_worker_id=busy.worker_id)
    transitions.create_executions([pinned] * (limits.PLACE_BATCH_EXECUTIONS + 100))
    other = make_execution(job=make_job(priority=0))
    place_ready_executions()
    assert other.id in placed()


def test_backlog_of_many_shapes_is_scanned_in_a_bounded_number_of_passes() -> None:
    """Each shape differs a little, so ruling out one rules out no other."""
    able = make_worker(resources={"gpu": 1})
    run_on(able, make_execution(job=make_job(resources={"gpu": 1})))
    for number in range(40):
        make_execution(job=make_job(priority=9, resources={"gpu": 1}, memory_mb=64 + number))
    other = make_execution(job=make_job(priority=0))
    resume: Mapping[str, ScanProgress] = {}
    passes = 0
    while other.id not in placed():
        resume = place_ready_executions(limit=4, scan_limit=8, resume=resume).resume
        passes += 1
        assert passes <= 10, "each continues where the one before it stopped"
    assert place_ready_executions(limit=4, scan_limit=8, resume={}).resume, "then it starts at the top again"


def passes_until(wanted: Execution, resume: Mapping[str, ScanProgress]) -> tuple[int, Mapping[str, ScanProgress]]:
    """Return how many passes it takes while every other placed execution finishes at once."""
    for number in range(1, 100):
        resume = place_ready_executions(limit=4, scan_limit=16, resume=resume).resume
        if wanted.id in placed():
            return number, resume
        for execution in Execution.objects.filter(state="queued"):
            finish(execution)
    raise AssertionError("it was never placed")


def finish(execution: Execution) -> None:
    hold = hold_of(execution)
    transitions.claim(hold)
    transitions.start(hold, {})
    finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0))


@pytest.mark.parametrize("count", [3, 30])
def test_full_pool_does_not_reset_the_scan_position(count: int) -> None:
    able = make_worker(slots=2, resources={"gpu": 1})
    run_on(able, make_execution(job=make_job(resources={"gpu": 1})))
    for number in range(60):
        make_execution(job=make_job(priority=9, resources={"gpu": 1}, memory_mb=64 + number))
    first, second, *_ = [make_execution(job=make_job(priority=0)) for _ in range(count)]
    passes, resume = passes_until(first, {})
    assert passes > 3
    for _ in range(3):
        full = place_ready_executions(limit=4, scan_limit=16, resume=resume)
        assert (full.placed, full.full, full.more_to_scan) == (0, True, False)
        resume = full.resume
    finish(Execution.objects.get(id=first.id))
    passes, resume = passes_until(second, resume)
    assert passes == 1, "the next one that fits follows the last one placed"
    finish(Execution.objects.get(id=second.id))
    urgent = make_execution(job=make_job(priority=5))
    Execution.objects.filter(id=urgent.id).update(rank=Execution.objects.order_by("rank")[40].rank)
    passes, _ = passes_until(urgent, resume)
    assert passes <= 12, "executions added before it meanwhile are not skipped for good"


def test_freed_capacity_goes_to_the_first_in_rank() -> None:
    make_worker()
    able = make_worker(resources={"gpu": 1})
    hold = run_on(able, make_execution(job=make_job(resources={"gpu": 1})))
    waiting = [make_execution(job=make_job(priority=9, resources={"gpu": 1})) for _ in range(30)]
    stopped = place_ready_executions(limit=4, scan_limit=8)
    assert stopped.resume
    finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0))
    place_ready_executions(limit=4, scan_limit=8, resume=stopped.resume)
    assert placed() == [waiting[0].id]


def test_worker_is_reserved_for_a_large_execution_behind_a_backlog() -> None:
    crowd_for_a_busy_gpu(100)
    worker = make_worker(cpu=1000.0)
    hold = run_on(worker, make_execution(job=make_job(cpu=600.0)))
    large = make_execution(job=make_job(cpu=900.0))
    long_ago = datetime.now(UTC) - timedelta(seconds=limits.RESERVE_AFTER_SECONDS + 1)
    Execution.objects.filter(id=large.id).update(ready_at=long_ago)
    small = make_execution(job=make_job(cpu=300.0))
    assert place_ready_executions(limit=8).placed == 0
    finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0))
    place_ready_executions(limit=8)
    assert {large.id, small.id} & set(placed()) == {large.id}


def test_worker_stays_reserved_for_the_first_of_many_alike() -> None:
    """The backlog behind them is so long that a pass scans twice."""
    worker = make_worker(cpu=1000.0)
    run_on(worker, make_execution(job=make_job(cpu=600.0)))
    for _ in range(2):
        make_execution(job=make_job(cpu=900.0))
    long_ago = datetime.now(UTC) - timedelta(seconds=limits.RESERVE_AFTER_SECONDS + 1)
    Execution.objects.filter(state="ready").update(ready_at=long_ago)
    for number in range(FIRST_SCAN_EXECUTIONS):
        make_execution(job=make_job(cpu=300.0 + number))
    assert place_ready_executions().placed == 0


def test_lowered_limit_applies_to_waiting_executions() -> None:
    make_worker()
    job = make_job(max_concurrency=5)
    for _ in range(5):
        make_execution(job=job)
    edit_job(job.id, JobEdit(max_concurrency=1))
    assert [place_ready_executions().placed for _ in range(2)] == [1, 0]


def test_removed_limit_does_not_apply_to_earlier_versions() -> None:
    make_worker()
    job = make_job(max_concurrency=1)
    for _ in range(3):
        make_execution(job=job)
    edit_job(job.id, JobEdit(max_concurrency=None))
    assert [place_ready_executions().placed for _ in range(2)] == [1, 0]


@pytest.mark.parametrize(("present", "capacity"), [(5, 0), (7, 1), (None, 5)])
def test_limit_applies_among_versions_with_and_without_one(present: int | None, capacity: int) -> None:
    worker = make_worker()
    job = make_job(max_concurrency=2)
    limited = make_execution(job=job)
    edit_job(job.id, JobEdit(max_concurrency=None))
    job.refresh_from_db()
    running = [make_execution(job=job) for _ in range(10)]
    for execution in running[:5]:
        run_on(worker, execution)
    edit_job(job.id, JobEdit(max_concurrency=present))
    assert [place_ready_executions().placed for _ in range(2)] == [capacity, 0]
    assert limited.id not in placed(), "its own version allows two, and five are active"
