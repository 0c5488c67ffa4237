"""Follow-ups that fail, are locked or are too many delay neither the outcome nor other executions."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from jobs.db.row_isolation import SkippedRows
from jobs.definitions import lifecycle
from jobs.domain import limits
from jobs.domain.states import Reason, State
from jobs.domain.worker_protocol import MovedExecution, RunReport
from jobs.execution import completion, fan_outs, transitions
from jobs.execution import dependents as dependencies
from jobs.execution.attempts import finish_attempt
from jobs.execution.deadlines import expire_overdue
from jobs.execution.dependents import MissingExecution, defer_dependents, sweep_blocked
from jobs.execution.fan_outs import FanOutResult, resolve_fan_outs
from jobs.execution.transitions import NewExecution, create_executions
from jobs.fleet.reaping import reap_lost_workers
from jobs.models import Attempt, Dependency, Execution, FanOut, Job, Schedule, Trigger, Worker
from tests.integration.execution.test_dependencies_large import make_graph
from tests.support.factories import (
    make_execution,
    make_job,
    make_schedule,
    make_worker,
    place_on,
    run_on,
    stamp_reaping,
)

pytestmark = pytest.mark.django_db

DONE = RunReport(Reason.EXIT, exit_code=0)


@pytest.fixture(autouse=True)
def _beats_were_there(db: None) -> None:
    stamp_reaping()


@pytest.fixture
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FAN_OUT_BATCH_EXECUTIONS", 10)
    monkeypatch.setattr(limits, "FAN_OUT_MAX_EDGES", 100)


def end_leases() -> None:
    Worker.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))


def delayed(expression: str, **version: Any) -> tuple[Schedule, Execution]:
    """A schedule that waits for its only execution to finish."""
    job = make_job(delivery="at_most_once", **version)
    schedule = make_schedule(job=job, kind="delay", expression=expression, next_instant=None)
    instant = datetime.now(UTC)
    new = NewExecution(job.id, Trigger.SCHEDULE, schedule_id=schedule.id, scheduled_for=instant)
    (execution_id,) = create_executions([new])
    return schedule, Execution.objects.get(id=execution_id)


def upstream_of(dependents: int, **version: Any) -> Execution:
    ids = make_graph([(n, 0) for n in range(1, dependents + 1)], dependents + 1)
    Job.objects.get(id=ids[0]).versions.update(**version)
    return make_execution(job=Job.objects.get(id=ids[0]))


def finish(execution: Execution) -> None:
    finish_attempt(run_on(make_worker(), execution), DONE)


def cancel(execution: Execution) -> None:
    lifecycle.cancel_execution(execution.id, by="test")


def expire(execution: Execution) -> None:
    Execution.objects.filter(id=execution.id).update(deadline_at=datetime.now(UTC) - timedelta(seconds=1))
    assert expire_overdue() == 1


def reap(execution: Execution) -> None:
    run_on(make_worker(), execution)
    end_leases()
    assert reap_lost_workers().executions == 1


WAYS = pytest.mark.parametrize(
    ("way", "becomes"), [(finish, "succeeded"), (cancel, "cancelled"), (expire, "timed_out"), (reap, "failed")]
)


@WAYS
def test_unparsable_delay_is_quarantined_and_its_run_finishes(way: Callable[[Execution], None], becomes: str) -> None:
    schedule, execution = delayed("nonsense")
    way(execution)
    execution.refresh_from_db()
    schedule.refresh_from_db()
    assert (execution.state, schedule.next_instant) == (becomes, None)
    assert schedule.quarantined_at is not None
    assert "seconds as a plain decimal number" in schedule.quarantine_error


def test_poisoned_run_stops_neither_registration_nor_reaping() -> None:
    _, poisoned = delayed("nonsense")
    healthy = make_execution()
    run_on(make_worker(name="first"), poisoned)
    run_on(make_worker(name="second"), healthy)
    make_worker(name="first")
    end_leases()
    reap_lost_workers()
    healthy.refresh_from_db()
    poisoned.refresh_from_db()
    assert (poisoned.state, healthy.state) == ("failed", "ready")


@WAYS
@pytest.mark.usefixtures("_small_pages")
def test_many_dependents_are_left_to_fan_outs_page_by_page(way: Callable[[Execution], None], becomes: str) -> None:
    upstream = upstream_of(35, delivery="at_most_once")
    way(upstream)
    upstream.refresh_from_db()
    assert upstream.state == becomes
    assert Execution.objects.count() == 1, "left to the fan-outs"
    results = [resolve_fan_outs(limit=10) for _ in range(20)]
    assert max(result.created for result in results) == 10
    assert max(result.unblocked + result.skipped for result in results) == 10
    assert results[-1] == FanOutResult()
    assert not FanOut.objects.exists()
    decided = "ready" if becomes == "succeeded" else "skipped"
    assert Execution.objects.filter(state=decided).exclude(id=upstream.id).count() == 35


@pytest.mark.usefixtures("_small_pages")
def test_large_run_is_decided_only_after_it_is_created() -> None:
    """The last job depends on the first of the fan-out and on one far behind: it must wait for both."""
    ids = make_graph([(n, 0) for n in range(1, 31)], 31)
    first, last = sorted(ids[1:])[0], sorted(ids[1:])[-1]
    late = make_job(owner=Job.objects.get(id=first).owner)
    for upstream in (first, last):
        Dependency.objects.create(job=late, upstream_id=upstream)
    root = make_execution(job=Job.objects.get(id=ids[0]))
    finish(root)
    resolve_fan_outs(limit=10)
    assert Execution.objects.get(job_id=first).state == "blocked"
    sweep_blocked()
    assert not Execution.objects.exclude(id=root.id).exclude(state="blocked").exists()
    while resolve_fan_outs(limit=10).more:
        pass
    finish(Execution.objects.get(job_id=first))
    assert Execution.objects.get(job=late).state == "blocked", "its other upstream has not finished"
    finish(Execution.objects.get(job_id=last))
    assert Execution.objects.get(job=late).state == "ready"


@pytest.mark.usefixtures("_small_pages")
def test_failure_skips_a_large_run_of_many_levels() -> None:
    edges = (
        [(n, 0) for n in range(1, 21)] + [(20 + n, n) for n in range(1, 21)] + [(40 + n, 20 + n) for n in range(1, 21)]
    )
    ids = make_graph(edges, 61)
    root = make_execution(job=Job.objects.get(id=ids[0]))
    cancel(root)
    while resolve_fan_outs(limit=10).more:
        pass
    while sweep_blocked().skipped:
        pass
    assert Execution.objects.filter(state="skipped").count() == 60
    assert not FanOut.objects.exists()


def test_error_while_resolving_defers_the_dependents(monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = upstream_of(3)

    def fail(*_: object, **__: object) -> None:
        raise ValueError("cannot be resolved")

    with monkeypatch.context() as broken:
        broken.setattr(dependencies, "create_missing_executions", fail)
        finish(upstream)
    assert Execution.objects.get().state == "succeeded"
    while resolve_fan_outs(limit=10).more:
        pass
    assert Execution.objects.filter(state="ready").count() == 3


def test_finishing_with_thousands_of_dependents_is_fast() -> None:
    upstream = upstream_of(20_000)
    hold = run_on(make_worker(), upstream)
    began = time.monotonic()
    finish_attempt(hold, DONE)
    took = time.monotonic() - began
    assert Execution.objects.count() == 1
    assert took < 1, "resolving all of them takes several seconds"


def test_execution_that_cannot_be_reclaimed_is_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = make_worker()
    executions = [make_execution() for _ in range(7)]
    for execution in executions:
        run_on(worker, execution)
    poisoned = executions[3]
    poison(monkeypatch, poisoned.id)
    end_leases()
    assert reap_lost_workers().workers == 1
    states = {e.id: e.state for e in Execution.objects.all()}
    assert states.pop(poisoned.id) == "running"
    assert set(states.values()) == {"ready"}
    registered = make_worker(name=Worker.objects.get().name)
    assert registered.incarnation == 2


def poison(monkeypatch: pytest.MonkeyPatch, *execution_ids: UUID, slow: bool = False) -> None:
    """Make their completion fail, or exceed the statement timeout if `slow`."""
    settle = completion.on_finished

    def settle_or_fail(moved: list[MovedExecution]) -> None:
        if {m.execution_id for m in moved} & set(execution_ids):
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(%s)", [60 if slow else 0])
            raise ValueError("poisoned")
        settle(moved)

    monkeypatch.setattr("jobs.execution.completion.on_finished", settle_or_fail)


def test_overdue_execution_that_cannot_finish_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    executions = [make_execution() for _ in range(5)]
    Execution.objects.update(deadline_at=datetime.now(UTC) - timedelta(seconds=1))
    poison(monkeypatch, executions[0].id)
    assert expire_overdue() == 4
    assert Execution.objects.get(ended_at__isnull=True).id == executions[0].id


@pytest.mark.parametrize("way", [reap_lost_workers, expire_overdue])
def test_execution_that_is_slow_to_finish_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, way: Callable[[], object]
) -> None:
    worker = make_worker()
    executions = [make_execution() for _ in range(9)]
    for execution in executions if way is reap_lost_workers else ():
        run_on(worker, execution)
    Execution.objects.update(deadline_at=datetime.now(UTC) - timedelta(seconds=1))
    end_leases()
    before = set(Execution.objects.values_list("state", flat=True))
    poison(monkeypatch, executions[4].id, slow=True)
    way()
    assert [e.id for e in Execution.objects.filter(state__in=before)] == [executions[4].id]


def test_slow_fan_out_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, other = make_execution(), make_execution()
    for upstream in (slow, other):
        Dependency.objects.create(job=make_job(), upstream=upstream.job)
        Execution.objects.filter(id=upstream.id).update(state="succeeded", ended_at=datetime.now(UTC))
        defer_dependents([MovedExecution(upstream.id, upstream.job_id, upstream.run_id, State.SUCCEEDED)])
    create = dependencies.create_missing_executions

    def create_or_wait(missing: list[MissingExecution]) -> None:
        if slow.run_id in {m.run_id for m in missing}:
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('statement_timeout', '100ms', true)")
                cursor.execute("SELECT pg_sleep(60)")
        create(missing)

    monkeypatch.setattr(fan_outs, "create_missing_executions", create_or_wait)
    while resolve_fan_outs().more:
        pass
    assert [e.run_id for e in Execution.objects.filter(trigger="dependency", state="ready")] == [other.run_id]


def test_pass_in_which_every_completion_fails_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FINISH_PASS_SECONDS", 0.0)
    monkeypatch.setattr(limits, "FINISH_BISECT_SECONDS", 0.0)
    executions = [make_execution() for _ in range(9)]
    Execution.objects.update(deadline_at=datetime.now(UTC) - timedelta(seconds=1))
    tries: list[int] = []

    def fail(moved: list[MovedExecution]) -> None:
        tries.append(len(moved))
        raise ValueError("poisoned")

    monkeypatch.setattr("jobs.execution.completion.on_finished", fail)
    expire_overdue()
    assert tries == [len(executions)], "the next pass continues"


def test_number_of_set_aside_rows_is_unlimited() -> None:
    aside, ids = SkippedRows(), {uuid4() for _ in range(3000)}
    for row_id in ids:
        aside.add(row_id)
    assert set(aside.ids()) == ids


def test_reclaiming_from_a_worker_is_paged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FINISH_BATCH_EXECUTIONS", 3)
    worker = make_worker()
    for _ in range(8):
        place_on(worker, make_execution())
    end_leases()
    pages: list[int] = []
    lose = transitions.lose_executions

    def watched(*args: object, **how: object) -> list[MovedExecution]:
        moved = lose(*args, **how)  # type: ignore[arg-type]
        pages.append(len(moved))
        return moved

    monkeypatch.setattr(transitions, "lose_executions", watched)
    assert reap_lost_workers().executions == 8
    assert pages == [3, 3, 2]
    assert set(Execution.objects.values_list("state", flat=True)) == {State.READY.value}
    assert not Attempt.objects.exists()
