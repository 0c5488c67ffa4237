"""A locked row, however long, delays no renewals, placements or reaping of other rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from jobs.dispatch.placement import place_ready_executions
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import RunReport
from jobs.execution.attempts import finish_attempt
from jobs.execution.dependents import sweep_blocked
from jobs.execution.fan_outs import resolve_fan_outs
from jobs.execution.transitions import NewExecution, create_executions
from jobs.fleet.leases import deregister_worker, renew_lease
from jobs.fleet.reaping import ReapResult, reap_lost_workers
from jobs.models import Dependency, Execution, FanOut, Job, Schedule, Trigger, Worker
from jobs.scheduling.firing import fire_due_schedules
from tests.support.barriers import DEADLINE_SECONDS
from tests.support.factories import (
    make_execution,
    make_job,
    make_schedule,
    make_worker,
    place_on,
    run_on,
    stamp_reaping,
)
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def locked(row_id: UUID, model: type[Execution | Job | Schedule | Worker] = Execution) -> Iterator[None]:
    """Lock the row in another transaction, which is stuck."""
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


def test_worker_renews_while_its_execution_is_locked() -> None:
    worker, listed, unlisted = make_worker(), make_execution(), make_execution()
    run_on(worker, listed)
    run_on(worker, unlisted)
    Execution.objects.update(claimed_at=datetime.now(UTC) - timedelta(hours=1))
    before = Worker.objects.get().lease_until
    with locked(listed.id), locked(unlisted.id):
        assert renew_lease(worker, [(listed.id, 1)]) == []
        assert Worker.objects.get().lease_until > before
    renew_lease(worker, [(listed.id, 1)])
    assert Execution.objects.get(id=unlisted.id).state == "ready", "an unlisted run is lost as soon as its row is free"


def test_locked_execution_does_not_block_placement_of_others() -> None:
    make_worker()
    held, other = make_execution(), make_execution()
    with locked(held.id):
        assert [p.execution_id for p in place_ready_executions().publications] == [other.id]
    assert [p.execution_id for p in place_ready_executions().publications] == [held.id]


def states() -> dict[UUID, str]:
    return dict(Execution.objects.values_list("id", "state"))


def test_locked_execution_of_a_lost_worker_is_reclaimed_by_the_next_pass() -> None:
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


def test_locked_worker_is_reaped_by_the_next_pass() -> None:
    held, other = make_worker(), make_worker()
    stamp_reaping()
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    with locked(held.worker_id, Worker):
        assert reap_lost_workers().workers == 1
        assert Worker.objects.get(status="lost").id == other.worker_id
    assert reap_lost_workers().workers == 1


def test_locked_worker_does_not_keep_others_from_being_suspect() -> None:
    held, other = make_worker(), make_worker()
    place_on(held, make_execution())
    place_on(other, make_execution())
    Execution.objects.update(placed_at=datetime.now(UTC) - timedelta(hours=1))
    with locked(held.worker_id, Worker):
        assert reap_lost_workers().suspects == 1
    assert Worker.objects.get(status="suspect").id == other.worker_id


def test_worker_registers_while_an_execution_of_its_earlier_incarnation_is_locked() -> None:
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


def test_locked_execution_of_a_leaving_worker_is_released_by_the_next_pass() -> None:
    worker, held, other = make_worker(), make_execution(), make_execution()
    run_on(worker, held)
    run_on(worker, other)
    stamp_reaping()
    with locked(held.id):
        deregister_worker(worker)
        assert states() == {held.id: "running", other.id: "ready"}
    assert reap_lost_workers() == ReapResult(executions=1)
    assert set(Execution.objects.values_list("state", "times_lost")) == {("ready", 0)}


def delayed(**version: Any) -> tuple[Schedule, Execution]:
    job = make_job(**version)
    schedule = make_schedule(job=job, kind="delay", expression="600", next_instant=None)
    new = NewExecution(job.id, Trigger.SCHEDULE, schedule_id=schedule.id, scheduled_for=datetime.now(UTC))
    (execution_id,) = create_executions([new])
    return schedule, Execution.objects.get(id=execution_id)


def test_run_finishes_at_once_while_its_fixed_delay_is_locked() -> None:
    schedule, execution = delayed()
    hold = run_on(make_worker(), execution)
    with locked(schedule.id, Schedule):
        began = time.monotonic()
        assert finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0)).state == "succeeded"
        assert time.monotonic() - began < 2, "the lock timeout is five seconds"


def test_run_finishes_at_once_while_a_dependent_job_is_locked() -> None:
    """Its execution is still to be created: the foreign keys would wait for the job at the commit."""
    upstream, held, other = make_job(), make_job(), make_job()
    for job in (held, other):
        Dependency.objects.create(job=job, upstream=upstream)
    hold = run_on(make_worker(), make_execution(job=upstream))
    ended = Execution.objects.get(id=hold.execution_id)
    with locked(held.id, Job):
        began = time.monotonic()
        finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0))
        resolve_fan_outs()
        assert time.monotonic() - began < 2
        ended.refresh_from_db()
        assert ended.state == "succeeded"
        assert not Execution.objects.filter(job=held).exists()
    FanOut.objects.update(try_at=datetime.now(UTC))
    while resolve_fan_outs().more:
        pass
    assert {e.job_id: e.state for e in Execution.objects.exclude(id=ended.id)} == {held.id: "ready", other.id: "ready"}


def fan_out() -> None:
    while resolve_fan_outs().more:
        pass


def test_locked_job_does_not_delay_other_dependents(caplog: pytest.LogCaptureFixture) -> None:
    """A dependent of the locked one as well must keep waiting for it."""
    upstream, held, free, after_both = (make_job() for _ in range(4))
    for job, runs_after in ((held, upstream), (free, upstream), (after_both, held), (after_both, free)):
        Dependency.objects.create(job=job, upstream=runs_after)
    worker = make_worker()
    hold = run_on(worker, make_execution(job=upstream))

    def of(job: Job) -> str | None:
        return Execution.objects.filter(job=job).values_list("state", flat=True).first()

    with locked(held.id, Job):
        finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0))
        fan_out()
        assert (of(held), of(free)) == (None, "ready")
        finish_attempt(run_on(worker, Execution.objects.get(job=free)), RunReport(Reason.EXIT, exit_code=0))
        fan_out()
        sweep_blocked()
        assert of(after_both) in {None, "blocked"}
        soon = datetime.now(UTC) + timedelta(seconds=2)
        assert not FanOut.objects.filter(try_at__gt=soon).exists(), "the locked one is retried soon"
        assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
    wait_for(lambda: not resolve_fan_outs().more and of(held) == "ready", "the held one is decided", seconds=10)
    finish_attempt(run_on(worker, Execution.objects.get(job=held)), RunReport(Reason.EXIT, exit_code=0))
    fan_out()
    assert of(after_both) == "ready"
    assert not FanOut.objects.exists()


def test_locked_dependent_does_not_keep_schedules_from_firing() -> None:
    """The first job's execution is skipped at firing, because its upstream has failed."""
    failed, scheduled, held = make_job(), make_job(), make_job()
    Dependency.objects.create(job=scheduled, upstream=failed)
    Dependency.objects.create(job=held, upstream=scheduled)
    now = datetime.now(UTC)
    Execution.objects.filter(id=make_execution(job=failed).id).update(
        state="failed", ended_at=now, scheduled_for=now - timedelta(seconds=5)
    )
    schedule = make_schedule(job=scheduled, expression="3600", starts_at=now, next_instant=now)
    other = make_schedule(job=make_job(), expression="3600", starts_at=now, next_instant=now)
    with locked(held.id, Job):
        assert fire_due_schedules().schedules == 2
    assert {s: Execution.objects.get(schedule=s).state for s in (schedule, other)} == {
        schedule: "skipped",
        other: "ready",
    }
    fan_out()
    assert Execution.objects.get(job=held).state == "skipped"


def test_workers_are_reaped_and_register_while_a_fixed_delay_is_locked() -> None:
    schedule, held = delayed(delivery="at_most_once")
    other = make_execution()
    run_on(make_worker(name="first"), held)
    run_on(make_worker(name="second"), other)
    stamp_reaping()
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    with locked(schedule.id, Schedule):
        assert reap_lost_workers() == ReapResult(workers=2, executions=2)
        assert states() == {held.id: "failed", other.id: "ready"}
        assert make_worker(name="first").incarnation == 2
