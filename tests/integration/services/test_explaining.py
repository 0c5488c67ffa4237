"""Why something waits: each gate closes for its own reason, and what is said is what the next pass does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from jobs import conf
from jobs.models import Dependency, Execution, OwnerQuota, Queue, Worker
from jobs.planning import Demand, Gate, Plan, Supply
from jobs.services import explaining
from jobs.services.explaining import explain_execution
from jobs.services.placement import place_ready_executions
from jobs.services.transitions import NewExecution, create_executions
from jobs.states import State
from tests.factories import make_execution, make_job, make_user, make_worker, run_on

pytestmark = pytest.mark.django_db


def closed(execution: Execution) -> set[str]:
    return {gate.name for gate in explain_execution(execution.id).gates if not gate.open}


def gate_of(execution: Execution, name: str) -> Gate:
    (gate,) = (gate for gate in explain_execution(execution.id).gates if gate.name == name)
    return gate


def test_what_nothing_holds_is_told_where_it_goes_and_goes_there() -> None:
    worker, execution = make_worker(name="alpha"), make_execution()
    told = explain_execution(execution.id)
    assert told.words == "Nothing holds it: the next pass places it on alpha."
    assert all(gate.open for gate in told.gates)
    names = {gate.name for gate in told.gates}
    assert names >= {"time", "job_pause", "queue_pause", "queue_limit", "job_limit", "capability", "resource.cpu"}
    place_ready_executions()
    execution.refresh_from_db()
    assert execution.worker_id == worker.worker_id
    assert explain_execution(execution.id).words == "It is queued on alpha."


def test_nothing_is_changed_by_asking() -> None:
    make_worker()
    execution = make_execution()
    explain_execution(execution.id)
    execution.refresh_from_db()
    assert (execution.state, execution.attempt) == ("ready", 0)


def test_what_has_ended_waits_for_nothing() -> None:
    execution = make_execution()
    Execution.objects.update(state="succeeded", ended_at=datetime.now(UTC))
    told = explain_execution(execution.id)
    assert (told.words, told.gates) == ("It has ended: succeeded.", [])


def test_a_dependency_is_told_with_what_it_waits_for() -> None:
    make_worker()
    upstream = make_execution(job=make_job(name="extract"))
    dependent = make_job()
    Dependency.objects.create(job=dependent, upstream=upstream.job)
    (own,) = create_executions(
        [NewExecution(dependent.id, "dependency", state=State.BLOCKED, run_id=upstream.run_id)]  # type: ignore[arg-type]
    )
    execution = Execution.objects.get(id=own)
    gate = gate_of(execution, "dependency")
    assert (gate.open, gate.value, gate.limit, gate.holders) == (False, "ready", "success", [upstream.id])
    assert "the success of extract, which is ready" in explain_execution(own).words


def test_a_retry_is_told_with_its_time() -> None:
    make_worker()
    execution, at = make_execution(), datetime.now(UTC) + timedelta(hours=1)
    Execution.objects.update(state="backing_off", retry_at=at)
    assert gate_of(execution, "time").limit == at
    assert closed(execution) == {"time"}


def test_a_paused_queue_holds_and_a_paused_job_does_not() -> None:
    make_worker()
    execution = make_execution()
    execution.job.state, execution.job.paused_at = "paused", datetime.now(UTC)
    execution.job.save()
    assert closed(execution) == set()
    Queue.objects.update(paused=True)
    assert closed(execution) == {"queue_pause"}
    assert place_ready_executions().placed == 0


def test_the_limit_of_an_owner_is_told_over_all_jobs_and_queues() -> None:
    worker, owner = make_worker(), make_user()
    OwnerQuota.objects.create(owner=owner, concurrent_executions=1)
    holder = run_on(worker, make_execution(job=make_job(owner=owner, queue=Queue.objects.create(name="other"))))
    execution = make_execution(job=make_job(owner=owner))
    gate = gate_of(execution, "owner_limit")
    assert (gate.open, gate.value, gate.limit, gate.holders) == (False, 1, 1, [holder.execution_id])
    assert closed(execution) == {"owner_limit"}
    assert "its owner is at their limit" in explain_execution(execution.id).words
    assert place_ready_executions().placed == 0
    assert closed(make_execution()) == set(), "another owner's"


@pytest.mark.parametrize("what", ["queue", "job"])
def test_a_limit_is_told_with_who_holds_it(what: str) -> None:
    worker = make_worker()
    queue = Queue.objects.create(name="narrow", max_concurrency=1 if what == "queue" else None)
    job = make_job(queue=queue, max_concurrency=1 if what == "job" else None)
    holder = run_on(worker, make_execution(job=job))
    execution = make_execution(job=job)
    gate = gate_of(execution, f"{what}_limit")
    assert (gate.open, gate.value, gate.limit, gate.holders) == (False, 1, 1, [holder.execution_id])
    assert gate.words == f"1 of at most 1 of its {what} are active."
    assert closed(execution) == {f"{what}_limit"}
    assert f"its {what} is at its limit" in explain_execution(execution.id).words


@pytest.mark.parametrize("what", ["queue", "job"])
def test_whoever_comes_first_takes_the_last_place_of_a_limit(what: str) -> None:
    make_worker()
    queue = Queue.objects.create(name="narrow", max_concurrency=1 if what == "queue" else None)
    job = make_job(queue=queue, max_concurrency=1 if what == "job" else None)
    first, second = make_execution(job=job), make_execution(job=job)
    assert closed(first) == set()
    assert closed(second) == {f"{what}_limit"}
    assert "others go before it" in gate_of(second, f"{what}_limit").words


def test_the_holders_of_a_shared_queue_are_only_the_owners_own() -> None:
    worker = make_worker()
    queue = Queue.objects.create(name="shared", max_concurrency=1)
    run_on(worker, make_execution(job=make_job(queue=queue)))
    gate = gate_of(make_execution(job=make_job(queue=queue)), "queue_limit")
    assert (gate.value, gate.holders) == (1, [])


def test_an_earlier_execution_that_can_run_nowhere_still_uses_up_the_jobs_limit() -> None:
    """As placement has it: what is said must be what happens."""
    make_worker()
    job = make_job(max_concurrency=1, capabilities=["nowhere"])
    make_execution(job=job)
    job.current_version = job.versions.create(
        **{
            field.name: getattr(job.current_version, field.name)
            for field in job.versions.model._meta.fields
            if field.name not in ("id", "job", "created_at", "number", "capabilities")
        },
        number=2,
    )
    job.save()
    behind = make_execution(job=job)
    assert closed(behind) == {"job_limit"}
    assert place_ready_executions().placed == 0


def test_a_capability_that_nobody_offers() -> None:
    make_worker()
    execution = make_execution(job=make_job(capabilities=["zos"]))
    gate = gate_of(execution, "capability")
    assert (gate.open, gate.value, gate.limit) == (False, ["bash", "zos"], 0)
    assert "no free worker offers bash, zos" in explain_execution(execution.id).words


@pytest.mark.parametrize(
    ("wants", "offers", "resource"),
    [
        ({"cpu": 3.0}, {"cpu": 2.0}, "cpu"),
        ({"memory_mb": 300}, {"memory_mb": 200}, "memory_mb"),
        ({"disk_mb": 300}, {"disk_mb": 200}, "disk_mb"),
        ({"resources": {"gpu": 3}}, {"resources": {"gpu": 2}}, "gpu"),
    ],
)
def test_a_resource_is_told_worker_by_worker(wants: dict[str, Any], offers: dict[str, Any], resource: str) -> None:
    small = make_worker(**offers)
    execution = make_execution(job=make_job(**wants))
    gate = gate_of(execution, f"resource.{resource}")
    assert (gate.open, gate.holders) == (False, [small.worker_id])
    assert isinstance(gate.value, int | float)
    assert isinstance(gate.limit, int | float)
    assert gate.value > gate.limit > 0
    assert closed(execution) == {f"resource.{resource}"}
    assert place_ready_executions().placed == 0


def test_a_full_worker_and_what_goes_before_are_counted() -> None:
    worker = make_worker(slots=2)
    run_on(worker, make_execution())
    make_execution()
    last = make_execution()
    gate = gate_of(last, "resource.slots")
    assert (gate.open, gate.value, gate.limit) == (False, 1, 0)


@pytest.mark.parametrize("status", ["draining", "lost"])
def test_a_worker_that_is_not_online_does_not_count(status: str) -> None:
    make_worker()
    Worker.objects.update(status=status)
    assert gate_of(make_execution(), "capability").limit == 0


def test_a_suspect_is_named() -> None:
    suspect = make_worker(name="silent")
    Worker.objects.update(status="suspect")
    make_worker(name="elsewhere", pool="other")
    Worker.objects.filter(name="elsewhere").update(status="suspect")
    gate = gate_of(make_execution(), "suspect")
    assert (gate.open, gate.holders) == (False, [suspect.worker_id])
    assert gate.words.startswith("silent is suspect")
    pinned = make_execution()
    Execution.objects.filter(id=pinned.id).update(pinned_worker_id=make_worker().worker_id)
    assert closed(pinned) == set(), "it does not ask for that one"


def test_a_pinned_worker_that_is_away_is_told() -> None:
    make_worker()
    away = make_worker()
    Worker.objects.filter(id=away.worker_id).update(status="offline")
    execution = make_execution()
    Execution.objects.update(pinned_worker_id=away.worker_id)
    gate = gate_of(execution, "worker")
    assert (gate.open, gate.holders) == (False, [away.worker_id])
    explained = explain_execution(execution.id)
    assert "the worker that it is to run on is not online" in explained.words
    assert "capability" not in {gate.name for gate in explained.gates}, "what it offers is not known"


def test_why_a_pinned_worker_takes_nothing_is_told() -> None:
    worker = make_worker(name="machine-2")
    execution = make_execution()
    Execution.objects.update(pinned_worker_id=worker.worker_id)
    for status, words in (("draining", "is draining"), ("suspect", "is suspect"), ("lost", "is not online")):
        Worker.objects.update(status=status)
        told = gate_of(execution, "worker").words
        assert told.startswith(f"machine-2, which it is to run on, {words}"), told


def test_for_whom_a_worker_is_kept() -> None:
    worker = make_worker(cpu=4.0)
    run_on(worker, make_execution(job=make_job(cpu=3.0)))
    large, small = make_execution(job=make_job(cpu=2.0)), make_execution(job=make_job(cpu=1.0))
    assert closed(small) == set()
    long_ago = datetime.now(UTC) - timedelta(seconds=conf.RESERVE_AFTER_SECONDS + 1)
    Execution.objects.filter(id=large.id).update(ready_at=long_ago)
    assert gate_of(small, "reservation").holders == [large.id]
    assert "kept for it" in explain_execution(large.id).words
    assert place_ready_executions().placed == 0


def test_it_is_told_by_the_function_that_places(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = make_execution()
    make_worker()

    def another(ready: Sequence[Demand], workers: Sequence[Supply], *, asked: Collection[UUID]) -> Plan:
        (own,) = asked
        assert (len(ready), len(workers), own) == (1, 1, execution.id)
        return Plan(
            held={own: "the moon is full"}, gates={own: [Gate("moon", False, "It is full.", holders=[uuid4()])]}
        )

    assert "Nothing holds it" in explain_execution(execution.id).words
    monkeypatch.setattr(explaining, "plan", another)
    told = explain_execution(execution.id)
    assert told.words == "It waits: the moon is full."
    assert [gate.name for gate in told.gates if not gate.open] == ["moon"]
