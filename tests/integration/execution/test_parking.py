"""Parking: executions that a limit holds back cost no pass anything and are unparked in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from jobs.definitions.editing import edit_job
from jobs.definitions.lifecycle import cancel_job
from jobs.dispatch import pool_plan
from jobs.dispatch.placement import place_ready_executions
from jobs.dispatch.placement_inputs import RankPosition, Scan, scan_ready_executions
from jobs.domain.job_edit import JobEdit
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import RunReport
from jobs.execution import parking, transitions
from jobs.execution.attempts import finish_attempt
from jobs.execution.deadlines import expire_overdue
from jobs.execution.parking import sweep_parked
from jobs.execution.transitions import NewExecution, create_executions
from jobs.models import Execution, Job, OwnerQuota, Trigger
from jobs.models.ids import new_id
from tests.support.factories import hold_of, make_execution, make_job, make_user, make_worker

pytestmark = pytest.mark.django_db


def crowd(job: Job, count: int) -> list[UUID]:
    return create_executions([NewExecution(job.id, Trigger.MANUAL)] * count)


def parked(job: Job) -> int:
    return Execution.objects.filter(job=job, state="ready", job_line__isnull=False).count()


def active(job: Job) -> list[UUID]:
    return list(Execution.objects.filter(job=job, state="queued").order_by("id").values_list("id", flat=True))


def finish_active(job: Job) -> None:
    for execution in Execution.objects.filter(job=job, state="queued"):
        hold = hold_of(execution)
        transitions.claim(hold)
        transitions.start(hold, {})
        finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0))


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many candidates one pass scans."""
    scans: list[tuple[RankPosition, Scan]] = []

    def read(pool: str, limit: int, after: RankPosition, **options: Any) -> Scan:
        scan = scan_ready_executions(pool, limit, after, **options)
        scans.append((after, scan))
        return scan

    monkeypatch.setattr(pool_plan, "scan_ready_executions", read)

    def count() -> int:
        scans.clear()
        place_ready_executions()
        return sum(scan.scanned for _, scan in scans[-1:])

    return count


@pytest.mark.parametrize("limit", [1, 3])
def test_execution_waiting_for_its_job_is_scanned_once(scanned: Callable[[], int], limit: int) -> None:
    make_worker()
    jobs = [make_job(max_concurrency=limit) for _ in range(3)]
    for job in jobs:
        crowd(job, 40)
    place_ready_executions()
    assert [parked(job) for job in jobs] == [40 - 2 * limit] * 3, "the next ones are candidates, whatever is active"
    assert scanned() == 3 * limit
    fresh = make_execution()
    assert place_ready_executions().placed == 1
    assert hold_of(fresh)


@pytest.mark.parametrize("limit", [1, 3])
def test_all_of_a_line_are_placed_in_their_order_and_never_more_at_once(limit: int) -> None:
    make_worker()
    job = make_job(max_concurrency=limit)
    waiting = crowd(job, 10)
    seen: list[UUID] = []
    while len(seen) < 10:
        place_ready_executions()
        assert 1 <= len(active(job)) <= limit
        seen += active(job)
        finish_active(job)
    assert seen == waiting


def test_cancelled_candidate_unparks_the_next_in_line() -> None:
    make_worker()
    job = make_job()
    first, second, third, *_ = crowd(job, 10)
    place_ready_executions()
    transitions.cancel([second, first], by="test")
    place_ready_executions()
    assert active(job) == [third]


def test_expired_candidate_unparks_the_next_in_line() -> None:
    make_worker()
    job = make_job()
    _, second, third, *_ = crowd(job, 10)
    place_ready_executions()
    Execution.objects.filter(id=second).update(deadline_at=timezone.now())
    assert expire_overdue() == 1
    finish_active(job)
    place_ready_executions()
    assert active(job) == [third]


def test_cancelled_job_has_no_parked_executions() -> None:
    make_worker()
    job = make_job()
    crowd(job, 10)
    place_ready_executions()
    cancel_job(job.id, by="test")
    assert parked(job) == 0
    assert not Execution.objects.filter(job=job, state="ready").exists()


def test_raised_limit_applies_in_the_next_pass() -> None:
    make_worker()
    job = make_job(max_concurrency=8)
    crowd(job, 20)
    edit_job(job.id, JobEdit(max_concurrency=1))
    assert [place_ready_executions().placed for _ in range(2)] == [1, 0]
    edit_job(job.id, JobEdit(max_concurrency=8))
    assert place_ready_executions().placed == 7


def test_returned_execution_keeps_its_rank() -> None:
    worker = make_worker()
    job = make_job()
    first, *_ = crowd(job, 5)
    place_ready_executions()
    transitions.lose_executions({worker.worker_id: None})
    place_ready_executions()
    assert active(job) == [first]


def test_execution_waiting_for_network_blocks_none_without_network() -> None:
    make_worker()
    job = make_job(network=True)
    crowd(job, 3)
    version = job.current_version
    assert version is not None
    version.id, version.number, version.network = new_id(), 2, False
    version.save(force_insert=True)
    Job.objects.filter(id=job.id).update(current_version=version)
    without = crowd(job, 5)
    for expected in without:
        place_ready_executions()
        place_ready_executions()
        assert active(job) == [expected]
        finish_active(job)


def test_sweep_unparks_a_forgotten_line() -> None:
    make_worker()
    jobs = [make_job() for _ in range(3)]
    for job in jobs:
        crowd(job, 5)
    place_ready_executions()
    Execution.objects.filter(state="ready", job_line=None).update(job_line=1)
    for job in jobs:
        finish_active(job)
    assert place_ready_executions().placed == 0
    swept = sweep_parked(limit=2)
    assert swept.unparked == 2
    assert sweep_parked(after=swept.after, limit=2) == parking.ParkingSweepResult(parking.FIRST_JOB_ID, 1)
    assert place_ready_executions().placed == 3
    assert sweep_parked().unparked == 0


def test_execution_waiting_for_its_owner_is_scanned_once(scanned: Callable[[], int]) -> None:
    make_worker()
    owner = limited(2)
    job = make_job(owner=owner, max_concurrency=None)
    crowd(job, 50)
    assert place_ready_executions().placed == 2
    place_ready_executions()
    assert scanned() == 0
    make_execution()
    assert place_ready_executions().placed == 1


def test_executions_of_an_owner_are_all_placed_within_the_quota() -> None:
    make_worker()
    owner = limited(2)
    jobs = [make_job(owner=owner, max_concurrency=None) for _ in range(2)]
    for job in jobs:
        crowd(job, 15)
    done = 0
    for _ in range(100):
        place_ready_executions()
        now = [execution_id for job in jobs for execution_id in active(job)]
        assert len(now) <= 2
        done += len(now)
        for job in jobs:
            finish_active(job)
        if done == 30:
            break
    assert done == 30


def test_removed_quota_unparks_its_executions() -> None:
    make_worker()
    owner = limited(1)
    job = make_job(owner=owner, max_concurrency=None)
    crowd(job, 20)
    place_ready_executions()
    place_ready_executions()
    OwnerQuota.objects.all().delete()
    while place_ready_executions().placed:
        pass
    assert len(active(job)) == 20


def limited(most: int) -> User:
    owner = make_user()
    OwnerQuota.objects.create(owner=owner, concurrent_executions=most)
    return owner
