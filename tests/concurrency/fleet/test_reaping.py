"""Concurrent reaping: a worker is lost once, all beats see a gap, and an earlier renewal wins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.domain import limits
from jobs.domain.errors import WorkerLeaseLost
from jobs.domain.worker_protocol import MovedExecution, Registration
from jobs.execution import transitions
from jobs.fleet.leases import renew_lease
from jobs.fleet.reaping import ReapResult, reap_lost_workers
from jobs.models import Execution, ReaperStamp, Worker
from tests.support.barriers import at_once
from tests.support.factories import make_execution, make_worker, run_on, stamp_reaping

pytestmark = pytest.mark.django_db(transaction=True)

BEATS = 4


def test_concurrent_beats_reap_a_worker_once() -> None:
    for _ in range(5):
        run_on(make_worker(), make_execution())
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    stamp_reaping()
    results = at_once([reap_lost_workers] * BEATS)
    assert sum(result.workers for result in results) == 5
    assert set(Execution.objects.values_list("times_lost", flat=True)) == {1}


def test_all_beats_see_the_same_gap() -> None:
    run_on(make_worker(), make_execution())
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    stamp_reaping(ago=3600)
    assert at_once([reap_lost_workers] * BEATS) == [ReapResult()] * BEATS
    stamp = ReaperStamp.objects.get()
    assert datetime.now(UTC) - stamp.unbroken_since < timedelta(seconds=60)
    stamp_reaping()
    assert reap_lost_workers().workers == 1


def test_worker_either_renews_or_is_lost() -> None:
    """The lease ends while renewal and reaper run."""
    stamp_reaping()
    for round_ in range(20):
        worker = make_worker(name=f"hurried-{round_}")
        execution = make_execution()
        run_on(worker, execution)
        Worker.objects.filter(id=worker.worker_id).update(lease_until=datetime.now(UTC) + timedelta(milliseconds=5))
        renewed, _ = at_once([renewal(worker, execution), reap_lost_workers])
        lost = Worker.objects.get(id=worker.worker_id).status == "lost"
        assert not (renewed and lost)
        execution.refresh_from_db()
        assert (execution.state == "ready") == lost


@pytest.mark.parametrize("status", ["lost", "offline"])
def test_worker_registering_while_it_is_reaped_keeps_its_new_executions(
    status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker registers between the reaper's read and its reclaiming."""
    former, present = make_execution(), make_execution()
    run_on(make_worker(name="back"), former)
    Worker.objects.update(status=status)
    stamp_reaping()
    come_back = coming_between(lambda: run_on(make_worker(name="back"), present))
    monkeypatch.setattr(transitions, "lose_executions", come_back)
    reap_lost_workers()
    for execution, state in ((former, "ready"), (present, "running")):
        execution.refresh_from_db()
        assert execution.state == state


def test_late_renewal_reclaims_nothing_from_the_next_incarnation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker registers again between its renewal and the reclaiming of what it does not list."""
    monkeypatch.setattr(limits, "UNREPORTED_GRACE_SECONDS", 0.0)
    worker, execution = make_worker(name="back"), make_execution()
    run_on(make_worker(name="back"), execution)
    transitions.lose_executions({worker.worker_id: worker.incarnation}, listed=[])
    execution.refresh_from_db()
    assert execution.state == "running"


def coming_between(call: Callable[[], object]) -> Callable[..., list[MovedExecution]]:
    """Wrap `lose_executions`: before its first call, `call` runs and commits on another connection."""
    lose, first = transitions.lose_executions, iter([True])

    def lose_after(*workers: Any, **how: Any) -> list[MovedExecution]:
        if next(first, False):
            at_once([call])
        return lose(*workers, **how)

    return lose_after


def renewal(worker: Registration, execution: Execution) -> Callable[[], object]:
    def renew() -> bool:
        try:
            renew_lease(worker, [(execution.id, 1)])
        except WorkerLeaseLost:
            return False
        return True

    return renew
