"""Who holds a row, however long, stops no renewals, no placements and no reaping of anything else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection, transaction

from jobs.models import Execution, Worker
from jobs.services.leases import dismiss_worker, renew_lease
from jobs.services.placement import place_ready_executions
from jobs.services.reaping import ReapResult, reap_lost_workers
from tests.concurrency.connections import DEADLINE_SECONDS
from tests.factories import make_execution, make_worker, place_on, run_on, stamp_reaping

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def locked(row_id: UUID, model: type[Execution | Worker] = Execution) -> Iterator[None]:
    """By somebody else, who is stuck."""
    holds, done = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                model.objects.select_for_update().get(id=row_id)
                holds.set()
                done.wait(DEADLINE_SECONDS)
        finally:
            connection.close()

    stranger = threading.Thread(target=hold, daemon=True)
    stranger.start()
    assert holds.wait(DEADLINE_SECONDS)
    try:
        yield
    finally:
        done.set()
        stranger.join(DEADLINE_SECONDS)


def test_a_worker_renews_while_somebody_holds_what_it_runs() -> None:
    worker, listed, unlisted = make_worker(), make_execution(), make_execution()
    run_on(worker, listed)
    run_on(worker, unlisted)
    Execution.objects.update(claimed_at=datetime.now(UTC) - timedelta(hours=1))
    before = Worker.objects.get().lease_until
    with locked(listed.id), locked(unlisted.id):
        assert renew_lease(worker, [(listed.id, 1)]) == []
        assert Worker.objects.get().lease_until > before
    renew_lease(worker, [(listed.id, 1)])
    assert Execution.objects.get(id=unlisted.id).state == "ready", "what nobody runs is lost as soon as it can be"


def test_what_somebody_holds_keeps_nothing_else_from_its_place() -> None:
    make_worker()
    held, other = make_execution(), make_execution()
    with locked(held.id):
        assert [p.execution_id for p in place_ready_executions().publications] == [other.id]
    assert [p.execution_id for p in place_ready_executions().publications] == [held.id]


def states() -> dict[UUID, str]:
    return dict(Execution.objects.values_list("id", "state"))


def test_what_somebody_holds_of_a_lost_worker_is_lost_by_the_next_pass_and_the_rest_at_once() -> None:
    worker, held, other = make_worker(), make_execution(), make_execution()
    run_on(worker, held)
    run_on(worker, other)
    stamp_reaping()
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    with locked(held.id):
        assert reap_lost_workers() == ReapResult(workers=1, executions=1)
        assert states() == {held.id: "running", other.id: "ready"}
        assert reap_lost_workers() == ReapResult()
    assert reap_lost_workers() == ReapResult(executions=1)
    assert states() == {held.id: "ready", other.id: "ready"}


def test_a_worker_that_somebody_holds_is_reaped_by_the_next_pass_and_the_others_at_once() -> None:
    held, other = make_worker(), make_worker()
    stamp_reaping()
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    with locked(held.worker_id, Worker):
        assert reap_lost_workers().workers == 1
        assert Worker.objects.get(status="lost").id == other.worker_id
    assert reap_lost_workers().workers == 1


def test_a_worker_that_somebody_holds_keeps_no_other_from_being_suspect() -> None:
    held, other = make_worker(), make_worker()
    place_on(held, make_execution())
    place_on(other, make_execution())
    Execution.objects.update(placed_at=datetime.now(UTC) - timedelta(hours=1))
    with locked(held.worker_id, Worker):
        assert reap_lost_workers().suspects == 1
    assert Worker.objects.get(status="suspect").id == other.worker_id


def test_a_worker_registers_while_somebody_holds_what_its_former_life_ran() -> None:
    held, other = make_execution(), make_execution()
    former = make_worker(name="again")
    run_on(former, held)
    run_on(former, other)
    stamp_reaping()
    with locked(held.id):
        make_worker(name="again")
        assert states() == {held.id: "running", other.id: "ready"}
    assert reap_lost_workers() == ReapResult(executions=1)
    lost = Execution.objects.get(id=held.id)
    assert (lost.state, lost.times_lost) == ("ready", 1)


def test_what_somebody_holds_of_a_worker_that_leaves_is_released_by_the_next_pass() -> None:
    worker, held, other = make_worker(), make_execution(), make_execution()
    run_on(worker, held)
    run_on(worker, other)
    stamp_reaping()
    with locked(held.id):
        dismiss_worker(worker)
        assert states() == {held.id: "running", other.id: "ready"}
    assert reap_lost_workers() == ReapResult(executions=1)
    assert set(Execution.objects.values_list("state", "times_lost")) == {("ready", 0)}
