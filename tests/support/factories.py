"""Rows for tests, with only what a test does not care about filled in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User

from jobs.domain.states import State
from jobs.domain.worker_protocol import AttemptFence, Registration, WorkerOffer
from jobs.execution import transitions
from jobs.execution.transitions import NewExecution, Placement, create_executions
from jobs.fleet.leases import register_worker
from jobs.models import Artifact, Attempt, Execution, Job, JobVersion, Output, Queue, ReaperStamp, Schedule, Trigger

numbers = count(1)


def make_user(**fields: Any) -> User:
    return User.objects.create_user(**({"username": f"user-{next(numbers)}"} | fields))


def make_job(*, owner: User | None = None, name: str = "job", state: str = "active", **version: Any) -> Job:
    owner = owner or make_user()
    job = Job.objects.create(owner=owner, name=name, state=state)
    stored = {"size": 1, "verified_at": datetime.now(UTC)}
    artifact, _ = Artifact.objects.get_or_create(owner=owner, sha256="0" * 64, defaults=stored)
    fields: dict[str, Any] = {
        "number": 1,
        "artifact": artifact,
        "runtime": "bash",
        "queue": Queue.objects.get_or_create(name="default")[0],
        "priority": 5,
        "cpu": 0.25,
        "memory_mb": 64,
        "disk_mb": 16,
        "timeout_seconds": 60,
    } | version
    job.current_version = JobVersion.objects.create(job=job, **fields)
    job.save()
    return job


def make_output(attempt: Attempt, *, name: str = "out", size: int = 1, sha256: str = "0" * 64) -> Output:
    owner = attempt.execution.job.owner
    return Output.objects.create(attempt=attempt, owner=owner, name=name, size=size, sha256=sha256)


def make_schedule(*, job: Job | None = None, **fields: Any) -> Schedule:
    now = datetime.now(UTC)
    values: dict[str, Any] = {
        "kind": "every",
        "expression": "60",
        "starts_at": now - timedelta(hours=1),
        "next_instant": now - timedelta(seconds=1),
    } | fields
    values.setdefault("next_fire_at", values["next_instant"])
    return Schedule.objects.create(job=job or make_job(), **values)


def make_execution(*, job: Job | None = None, state: State = State.READY) -> Execution:
    job = job or make_job()
    (execution_id,) = create_executions([NewExecution(job.id, Trigger.MANUAL, state=state)])
    return Execution.objects.get(id=execution_id)


def make_worker(*, name: str | None = None, **offer: Any) -> Registration:
    fields: dict[str, Any] = {
        "name": name or f"worker-{next(numbers)}",
        "instance": UUID(int=0),
        "pool": "default",
        "host": "test",
        "slots": 100,
        "cpu": 100.0,
        "memory_mb": 100_000,
        "disk_mb": 100_000,
        "capabilities": ["bash", "python", "binary", "inputs", "secrets"],
        "details": {},
    } | offer
    return register_worker(WorkerOffer(**fields))


def stamp_reaping(*, ago: float = 0, unbroken_for: float = 24 * 3600) -> None:
    """As if beats had looked for lost workers until then, without a gap."""
    stamped_at = datetime.now(UTC) - timedelta(seconds=ago)
    ReaperStamp.objects.update_or_create(
        defaults={"stamped_at": stamped_at, "unbroken_since": stamped_at - timedelta(seconds=unbroken_for)}
    )


def hold_of(execution: Execution) -> AttemptFence:
    """The hold of the worker that the execution is placed on now."""
    execution.refresh_from_db()
    assert execution.worker_id is not None
    assert execution.incarnation is not None
    return AttemptFence(execution.id, execution.attempt, execution.worker_id, execution.incarnation)


def place_on(worker: Registration, execution: Execution) -> AttemptFence:
    """Queued on that worker, which has not taken it yet."""
    assert len(transitions.place([Placement(execution.id, worker.worker_id, worker.incarnation)])) == 1
    return hold_of(execution)


def claim_on(worker: Registration, execution: Execution) -> AttemptFence:
    hold = place_on(worker, execution)
    transitions.claim(hold)
    return hold


def run_on(worker: Registration, execution: Execution) -> AttemptFence:
    hold = claim_on(worker, execution)
    transitions.start(hold, {"namespaces": ["pid"]})
    return hold
