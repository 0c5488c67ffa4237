"""A process that fills a database of the baseline, migrates it, and continues its work; run by `test_upgrade`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import django
from uuid_utils import compat

BASELINE = ("jobs", "0003_seed")
NOW = datetime.now(UTC)
OLD, LATER = NOW - timedelta(days=100), NOW + timedelta(hours=1)
# The fields of an execution in each state, besides those that all have.
STATES: dict[str, dict[str, Any]] = {
    "blocked": {},
    "ready": {"ready_at": NOW},
    "backing_off": {"ready_at": NOW, "retry_at": NOW, "attempt": 1, "tries_used": 1},
    "queued": {"ready_at": NOW, "placed_at": NOW, "published_at": NOW},
    "claimed": {"ready_at": NOW, "placed_at": NOW, "claimed_at": NOW},
    "running": {"ready_at": NOW, "placed_at": NOW, "claimed_at": NOW, "started_at": NOW},
    "succeeded": {"ended_at": NOW, "reason": "exit", "exit_code": 0},
    "failed": {"ended_at": NOW, "reason": "exit", "exit_code": 1, "dead_letter": "open"},
    "timed_out": {"ended_at": NOW, "reason": "timeout", "dead_letter": "open"},
    "cancelled": {"ended_at": NOW, "reason": "cancelled"},
    "missed": {"ended_at": NOW, "reason": "catch_up"},
    "skipped": {"ended_at": NOW, "reason": "overlap"},
}
ACTIVE = ("queued", "claimed", "running")


def uuid(at: datetime = NOW) -> UUID:
    identifier: UUID = compat.uuid7(nanoseconds=int(at.timestamp() * 1_000_000_000))
    return identifier


def fill(models: Any) -> dict[str, Any]:
    """Insert a job with a schedule, an execution in every state, old history and a worker that runs some of it."""
    owner = models("auth", "User").objects.create(username="owner")
    queue = models("jobs", "Queue").objects.get(name="default")
    artifact = models("jobs", "Artifact").objects.create(
        id=uuid(), owner=owner, sha256="0" * 64, size=1, verified_at=NOW
    )
    job = models("jobs", "Job").objects.create(id=uuid(), owner=owner, name="job", state="active")
    limits = {"priority": 5, "cpu": 0.25, "memory_mb": 64, "disk_mb": 16, "timeout_seconds": 60}
    job.current_version = models("jobs", "JobVersion").objects.create(
        id=uuid(), job=job, number=1, artifact=artifact, runtime="bash", queue=queue, max_concurrency=None, **limits
    )
    job.save()
    schedule = models("jobs", "Schedule").objects.create(
        id=uuid(), job=job, kind="every", expression="3600", starts_at=OLD, next_instant=LATER, next_fire_at=LATER
    )
    worker = models("jobs", "Worker").objects.create(
        id=uuid(), name="worker", instance=uuid(), incarnation=1, pool="default", host="here", status="online",
        slots=50, cpu=50.0, memory_mb=50_000, disk_mb=50_000, capabilities=["bash"], details={},
        registered_at=NOW, lease_until=LATER,
    )  # fmt: skip
    common = {"job": job, "version": job.current_version, "queue": queue, "rank": NOW}
    made: dict[str, Any] = {"schedule": schedule.id, "worker": worker.id, "job": job.id}
    for number, (state, fields) in enumerate(STATES.items()):
        id_ = uuid()
        held = {"worker": worker, "incarnation": 1, "attempt": 1} if state in ACTIVE else {}
        models("jobs", "Execution").objects.create(
            id=id_, run_id=id_, state=state, trigger="schedule", schedule=schedule, fired_at=NOW,
            scheduled_for=NOW - timedelta(minutes=number), **{**common, **held, **fields},
        )  # fmt: skip
        made[state] = id_
        if state in {"claimed", "running", "succeeded"}:
            ended = {"ended_at": NOW, "reason": "exit", "exit_code": 0} if state == "succeeded" else {}
            models("jobs", "Attempt").objects.create(
                id=uuid(),
                execution_id=id_,
                number=1,
                worker=worker,
                incarnation=1,
                placed_at=NOW,
                claimed_at=NOW,
                **ended,
            )
    for number in range(20):
        id_ = uuid(OLD)
        models("jobs", "Execution").objects.create(
            id=id_, run_id=id_, state="failed" if number % 2 else "succeeded", trigger="manual", scheduled_for=OLD,
            fired_at=OLD, ended_at=OLD, reason="exit", exit_code=number % 2, **common,
        )  # fmt: skip
    return made


def read(tables: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Read all rows, without the columns that migrations add."""
    from django.db import connection

    rows = {}
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"SELECT to_jsonb(t) - 'phase' FROM {table} t ORDER BY t.id")  # noqa: S608
            rows[table] = [row for (row,) in cursor.fetchall()]
    return rows


def check_phases() -> None:
    from jobs.models import Execution

    for state, phase in Execution.objects.values_list("state", "phase"):
        expected = "held" if state in ACTIVE else None if state == "succeeded" else state
        assert phase == expected, (state, phase)


def go_on(made: dict[str, Any]) -> None:
    """Every unfinished execution reaches the end that it would have reached; nothing fires twice."""
    from jobs.dispatch.placement import place_ready_executions
    from jobs.domain.states import Reason
    from jobs.domain.worker_protocol import AttemptFence, RunReport
    from jobs.execution import transitions
    from jobs.execution.attempts import claim_attempt, finish_attempt, start_attempt
    from jobs.execution.transitions import NewExecution
    from jobs.housekeeping.history_retention import prune_history
    from jobs.models import Execution, Trigger

    assert transitions.wake_backed_off() == 1
    again = NewExecution(made["job"], Trigger.SCHEDULE, schedule_id=made["schedule"], scheduled_for=NOW)
    before = Execution.objects.count()
    transitions.create_executions([again])
    assert Execution.objects.count() == before, "the instant fired before the upgrade"
    assert len(transitions.unblock([made["blocked"]])) == 1
    assert place_ready_executions().placed == 3
    attempts = {made[name]: 2 if name == "backing_off" else 1 for name in (*ACTIVE, "ready", "blocked", "backing_off")}
    for id_, attempt in attempts.items():
        fence = AttemptFence(id_, attempt, made["worker"], 1)
        state = Execution.objects.get(id=id_).state
        if state == "queued":
            claim_attempt(fence)
        if state != "running":
            start_attempt(fence, {})
        finish_attempt(fence, RunReport(reason=Reason.EXIT, exit_code=0))
    assert not Execution.objects.filter(ended_at__isnull=True).exists()
    assert prune_history(retention=timedelta(days=90)).executions == 20


def main() -> None:
    django.setup()
    from django.core.management import call_command
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    state = executor.migrate(
        [BASELINE, *((app, name) for app, name in executor.loader.graph.leaf_nodes() if app != "jobs")]
    )
    made = fill(state.apps.get_model)
    tables = ("jobs_job", "jobs_jobversion", "jobs_schedule", "jobs_worker", "jobs_execution", "jobs_attempt")
    before = read(tables)
    call_command("migrate", verbosity=0)
    assert read(tables) == before
    check_phases()
    go_on(made)
    check_phases()


if __name__ == "__main__":
    main()
