"""Explanations: each gate closes for its own reason, and the next pass does what they say."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User

from jobs.definitions.editing import edit_job
from jobs.dispatch import pool_plan
from jobs.dispatch.explain import explain_execution
from jobs.dispatch.placement import place_ready_executions
from jobs.domain import limits
from jobs.domain.job_edit import JobEdit
from jobs.domain.packing import Demand, Gate, Plan, Supply
from jobs.domain.states import State
from jobs.execution.transitions import NewExecution, create_executions
from jobs.models import Dependency, Execution, Job, Membership, OwnerQuota, Queue, Team, Trigger, Worker
from tests.support.factories import make_execution, make_job, make_user, make_worker, run_on

pytestmark = pytest.mark.django_db


def closed(execution: Execution) -> set[str]:
    return {gate.name for gate in explain_execution(execution.id).gates if not gate.open}


def gate_of(execution: Execution, name: str) -> Gate:
    (gate,) = (gate for gate in explain_execution(execution.id).gates if gate.name == name)
    return gate


def test_unhindered_execution_is_placed_as_explained() -> None:
    worker, execution = make_worker(name="alpha"), make_execution()
    explained = explain_execution(execution.id)
    assert explained.words == "Nothing holds it: the next pass places it on alpha."
    assert all(gate.open for gate in explained.gates)
    names = {gate.name for gate in explained.gates}
    assert names >= {"time", "job_pause", "queue_pause", "queue_limit", "job_limit", "capability", "resource.cpu"}
    place_ready_executions()
    execution.refresh_from_db()
    assert execution.worker_id == worker.worker_id
    assert explain_execution(execution.id).words == "It is queued on alpha."


def test_explaining_changes_nothing() -> None:
    make_worker()
    execution = make_execution()
    explain_execution(execution.id)
    execution.refresh_from_db()
    assert (execution.state, execution.attempt) == ("ready", 0)


def test_finished_execution_has_no_gates() -> None:
    execution = make_execution()
    Execution.objects.update(state="succeeded", ended_at=datetime.now(UTC))
    explained = explain_execution(execution.id)
    assert (explained.words, explained.gates) == ("It has ended: succeeded.", [])


def test_dependency_gate_names_the_upstream() -> None:
    make_worker()
    upstream = make_execution(job=make_job(name="extract"))
    dependent = make_job(owner=upstream.job.owner)
    Dependency.objects.create(job=dependent, upstream=upstream.job)
    (own,) = create_executions(
        [NewExecution(dependent.id, "dependency", state=State.BLOCKED, run_id=upstream.run_id)]  # type: ignore[arg-type]
    )
    execution = Execution.objects.get(id=own)
    gate = gate_of(execution, "dependency")
    assert (gate.open, gate.value, gate.limit, gate.holders) == (False, "ready", "success", [upstream.id])
    assert "the success of extract, which is ready" in explain_execution(own).words


def test_time_gate_of_a_retry() -> None:
    make_worker()
    execution, at = make_execution(), datetime.now(UTC) + timedelta(hours=1)
    Execution.objects.update(state="backing_off", retry_at=at)
    assert gate_of(execution, "time").limit == at
    assert closed(execution) == {"time"}


def test_paused_queue_closes_a_gate_and_paused_job_does_not() -> None:
    make_worker()
    execution = make_execution()
    execution.job.state, execution.job.paused_at = "paused", datetime.now(UTC)
    execution.job.save()
    assert closed(execution) == set()
    Queue.objects.update(paused=True)
    assert closed(execution) == {"queue_pause"}
    assert place_ready_executions().placed == 0


def test_owner_limit_counts_all_jobs_and_queues() -> None:
    worker, owner = make_worker(), make_user()
    OwnerQuota.objects.create(owner=owner, concurrent_executions=1)
    holder = run_on(worker, make_execution(job=make_job(owner=owner, queue=Queue.objects.create(name="other"))))
    execution = make_execution(job=make_job(owner=owner))
    gate = gate_of(execution, "owner_limit")
    assert (gate.open, gate.value, gate.limit, gate.holders) == (False, 1, 1, [holder.execution_id])
    assert closed(execution) == {"owner_limit"}
    assert "its owner is at their limit" in explain_execution(execution.id).words
    assert place_ready_executions().placed == 0
    assert closed(make_execution()) == set(), "it has another owner"


@pytest.mark.parametrize("what", ["queue", "job"])
def test_limit_gate_names_its_holders(what: str) -> None:
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
def test_higher_rank_gets_the_last_place_of_a_limit(what: str) -> None:
    make_worker()
    queue = Queue.objects.create(name="narrow", max_concurrency=1 if what == "queue" else None)
    job = make_job(queue=queue, max_concurrency=1 if what == "job" else None)
    first, second = make_execution(job=job), make_execution(job=job)
    assert closed(first) == set()
    assert closed(second) == {f"{what}_limit"}
    assert "others go before it" in gate_of(second, f"{what}_limit").words


def test_holders_in_a_shared_queue_are_the_owners_own() -> None:
    worker = make_worker()
    queue = Queue.objects.create(name="shared", max_concurrency=1)
    run_on(worker, make_execution(job=make_job(queue=queue)))
    gate = gate_of(make_execution(job=make_job(queue=queue)), "queue_limit")
    assert (gate.value, gate.holders) == (1, [])


def test_limit_and_dependency_gates_hide_unshared_executions_from_team_members() -> None:
    worker, owner, member = make_worker(), make_user(), make_user()
    team = Team.objects.create(name="theirs")
    Membership.objects.create(team=team, user=member)
    OwnerQuota.objects.create(owner=owner, concurrent_executions=1)
    narrow = Queue.objects.create(name="narrow", max_concurrency=1)
    private, shared = (make_job(owner=owner, queue=narrow) for _ in range(2))
    Job.objects.filter(id=shared.id).update(team=team)
    Dependency.objects.create(job=shared, upstream=private, condition="success")
    running = make_execution(job=private)
    run_on(worker, running)
    waiting = make_execution(job=shared)
    Execution.objects.filter(id=waiting.id).update(run_id=running.run_id)

    def holders(**viewer: User) -> dict[str, Sequence[UUID]]:
        explained = {gate.name: gate.holders for gate in explain_execution(waiting.id, **viewer).gates}
        return {name: explained[name] for name in ("dependency", "queue_limit", "owner_limit")}

    everything = {name: [running.id] for name in ("dependency", "queue_limit", "owner_limit")}
    assert holders() == holders(viewer=owner) == holders(viewer=make_user(is_staff=True)) == everything
    assert holders(viewer=member) == {name: [] for name in everything}


def test_unplaceable_execution_ahead_uses_up_the_job_limit() -> None:
    """As in placement: the explanation must match what happens."""
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


def test_capability_that_no_worker_offers() -> None:
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
def test_resource_gate_counts_workers(wants: dict[str, Any], offers: dict[str, Any], resource: str) -> None:
    small = make_worker(**offers)
    execution = make_execution(job=make_job(**wants))
    gate = gate_of(execution, f"resource.{resource}")
    assert (gate.open, gate.holders) == (False, [small.worker_id])
    assert isinstance(gate.value, int | float)
    assert isinstance(gate.limit, int | float)
    assert gate.value > gate.limit > 0
    assert closed(execution) == {f"resource.{resource}"}
    assert place_ready_executions().placed == 0


def test_full_workers_and_higher_ranks_are_counted() -> None:
    worker = make_worker(slots=2)
    run_on(worker, make_execution())
    make_execution()
    last = make_execution()
    gate = gate_of(last, "resource.slots")
    assert (gate.open, gate.value, gate.limit) == (False, 1, 0)


@pytest.mark.parametrize("status", ["draining", "lost"])
def test_worker_that_is_not_online_does_not_count(status: str) -> None:
    make_worker()
    Worker.objects.update(status=status)
    assert gate_of(make_execution(), "capability").limit == 0


def test_suspect_gate_names_the_worker() -> None:
    suspect = make_worker(name="silent")
    Worker.objects.update(status="suspect")
    make_worker(name="elsewhere", pool="other")
    Worker.objects.filter(name="elsewhere").update(status="suspect")
    gate = gate_of(make_execution(), "suspect")
    assert (gate.open, gate.holders) == (False, [suspect.worker_id])
    assert gate.words.startswith("silent is suspect")
    pinned = make_execution()
    Execution.objects.filter(id=pinned.id).update(pinned_worker_id=make_worker().worker_id)
    assert closed(pinned) == set(), "it is pinned to another worker"


def test_gate_of_a_pinned_worker_that_is_away() -> None:
    make_worker()
    away = make_worker()
    Worker.objects.filter(id=away.worker_id).update(status="offline")
    execution = make_execution()
    Execution.objects.update(pinned_worker_id=away.worker_id)
    gate = gate_of(execution, "worker")
    assert (gate.open, gate.holders) == (False, [away.worker_id])
    explained = explain_execution(execution.id)
    assert "the worker that it is pinned to is not online" in explained.words
    assert "capability" not in {gate.name for gate in explained.gates}, "its offer is unknown"


def test_gate_explains_why_a_pinned_worker_claims_nothing() -> None:
    worker = make_worker(name="machine-2")
    execution = make_execution()
    Execution.objects.update(pinned_worker_id=worker.worker_id)
    for status, words in (("draining", "is draining"), ("suspect", "is suspect"), ("lost", "is not online")):
        Worker.objects.update(status=status)
        explained = gate_of(execution, "worker").words
        assert explained.startswith(f"machine-2, which it is pinned to, {words}"), explained


def test_reservation_gate_names_the_execution() -> None:
    worker = make_worker(cpu=4.0)
    run_on(worker, make_execution(job=make_job(cpu=3.0)))
    large, small = make_execution(job=make_job(cpu=2.0)), make_execution(job=make_job(cpu=1.0))
    assert closed(small) == set()
    long_ago = datetime.now(UTC) - timedelta(seconds=limits.RESERVE_AFTER_SECONDS + 1)
    Execution.objects.filter(id=large.id).update(ready_at=long_ago)
    assert gate_of(small, "reservation").limit == worker.worker_id
    assert "reserved for it" in explain_execution(large.id).words
    assert place_ready_executions().placed == 0


def test_reservation_gate_hides_executions_from_other_users() -> None:
    worker, owner, member = make_worker(cpu=4.0), make_user(), make_user()
    team = Team.objects.create(name="theirs")
    Membership.objects.create(team=team, user=member)
    run_on(worker, make_execution(job=make_job(cpu=3.0)))
    large, small = make_execution(job=make_job(owner=owner, cpu=2.0)), make_execution(job=make_job(cpu=1.0))
    Job.objects.filter(id=large.job_id).update(team=team)
    long_ago = datetime.now(UTC) - timedelta(seconds=limits.RESERVE_AFTER_SECONDS + 1)
    Execution.objects.filter(id=large.id).update(ready_at=long_ago)

    def explained(**viewer: User) -> Sequence[UUID]:
        (gate,) = (g for g in explain_execution(small.id, **viewer).gates if g.name == "reservation")
        return gate.holders

    assert explained() == []
    assert explained(viewer=make_user()) == []
    assert (
        explained(viewer=owner) == explained(viewer=member) == explained(viewer=make_user(is_staff=True)) == [large.id]
    )


def test_lower_of_two_job_limits_applies() -> None:
    worker, job = make_worker(), make_job(max_concurrency=5)
    run_on(worker, make_execution(job=job))
    waiting = make_execution(job=job)
    assert gate_of(waiting, "job_limit").open
    edit_job(job.id, JobEdit(max_concurrency=1))
    gate = gate_of(waiting, "job_limit")
    assert (gate.open, gate.value, gate.limit) == (False, 1, 1)
    edit_job(job.id, JobEdit(max_concurrency=9))
    assert gate_of(waiting, "job_limit").limit == 5


def test_execution_behind_a_large_backlog_is_explained() -> None:
    worker = make_worker(resources={"gpu": 1})
    run_on(worker, make_execution(job=make_job(resources={"gpu": 1})))
    crowd = make_job(max_concurrency=None, resources={"gpu": 1}, priority=9)
    create_executions([NewExecution(crowd.id, Trigger.MANUAL)] * (limits.PLACE_BATCH_EXECUTIONS + 100))
    behind = make_execution(job=make_job(priority=0))
    assert "Nothing holds it" in explain_execution(behind.id).words
    last = Execution.objects.filter(job=crowd).latest("id")
    assert not gate_of(last, "resource.gpu").open


def test_explanations_use_the_placement_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = make_execution()
    make_worker()

    def another(ready: Sequence[Demand], workers: Sequence[Supply], *, explain: Collection[UUID]) -> Plan:
        (own,) = explain
        assert (len(ready), len(workers), own) == (1, 1, execution.id)
        return Plan(
            held={own: "the moon is full"}, gates={own: [Gate("moon", False, "It is full.", holders=[uuid4()])]}
        )

    assert "Nothing holds it" in explain_execution(execution.id).words
    monkeypatch.setattr(pool_plan, "plan_placements", another)
    explained = explain_execution(execution.id)
    assert explained.words == "It waits: the moon is full."
    assert [gate.name for gate in explained.gates if not gate.open] == ["moon"]
