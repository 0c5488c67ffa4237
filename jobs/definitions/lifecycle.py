"""Commands on jobs: execute, pause, resume, cancel, delete. The API and the console call these.

Each is one transaction. `precondition` is called once the job is locked: what it raises refuses the command.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.db import transaction

from jobs.access.quotas import check_backlog
from jobs.audit.log import record_change
from jobs.db import due_window, wakeups
from jobs.db.clock import database_now
from jobs.db.locks import lock_job, lock_job_and_schedules
from jobs.db.transactions import with_timeouts
from jobs.dispatch.placement import check_pin
from jobs.domain.errors import Conflict, IllegalTransition, NotFound
from jobs.domain.states import TERMINAL, State
from jobs.execution import completion, transitions
from jobs.execution.transitions import NewExecution
from jobs.models import Execution, Job, JobState, Schedule, Trigger
from jobs.scheduling import backfill, schedules
from jobs.scheduling.firing import fire_backlog


def execute_job(job_id: UUID, *, worker_id: UUID | None = None) -> UUID:
    """Create an execution now, pinned to a worker if one is given; return its id."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        job = lock_job(job_id)
        if job.state == JobState.CANCELLED:
            raise Conflict("The job is cancelled; submit it again to run it.")
        check_backlog(job)
        check_pin(job_id, worker_id)
        (execution_id,) = transitions.create_executions(
            [NewExecution(job_id, Trigger.MANUAL, pinned_worker_id=worker_id)]
        )
        pin = {} if worker_id is None else {"worker": worker_id}
        record_change("job.executed", job, owner_id=job.owner_id, after={"execution": execution_id} | pin)
        transaction.on_commit(wakeups.wake_beat)
    return execution_id


def cancel_job(job_id: UUID, *, by: str, precondition: Callable[[], None] = lambda: None) -> None:
    """Stop the schedules and cancel all unfinished executions; idempotent."""
    fire_backlog(Schedule.objects.filter(job_id=job_id))
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        job = lock_job_and_schedules(job_id)
        precondition()
        before, stopped = _snapshot(job), _cancel_work(job, by=by)
        record_change("job.cancelled", job, owner_id=job.owner_id, before=before, after=_snapshot(job) | stopped)


def delete_job(job_id: UUID, *, by: str, precondition: Callable[[], None] = lambda: None) -> None:
    """Cancel and hide the job; its history stays until retention prunes it."""
    fire_backlog(Schedule.objects.filter(job_id=job_id))
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        job = lock_job_and_schedules(job_id)
        if job.deleted_at is not None:
            raise NotFound
        precondition()
        before, stopped = _snapshot(job), _cancel_work(job, by=by)
        job.deleted_at = database_now()
        job.save(update_fields=["deleted_at", "updated_at"])
        schedules.delete_schedules(schedules.lock_schedules(job), job.deleted_at)
        record_change(
            "job.deleted", job, owner_id=job.owner_id, before=before, after=_snapshot(job) | stopped | {"deleted": True}
        )


def pause_job(job_id: UUID, *, note: str, precondition: Callable[[], None] = lambda: None) -> None:
    """Stop the schedules until the job is resumed; existing executions run on.

    Pausing again changes only the note.
    """
    fire_backlog(Schedule.objects.filter(job_id=job_id))
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        job = lock_job_and_schedules(job_id)
        precondition()
        if job.state == JobState.CANCELLED:
            raise Conflict("The job is cancelled; there is nothing to pause.")
        before = _snapshot(job)
        if job.state == JobState.ACTIVE:
            job.paused_at = schedules.pause_schedules(job)
            job.state = JobState.PAUSED
        job.paused_note = note
        job.save(update_fields=["state", "paused_at", "paused_note", "updated_at"])
        record_change("job.paused", job, owner_id=job.owner_id, before=before, after=_snapshot(job))


def resume_job(job_id: UUID, *, precondition: Callable[[], None] = lambda: None) -> None:
    """Let the schedules fire from now on; the pause's instants count as dropped. Idempotent."""
    with transaction.atomic(), with_timeouts(statement_seconds=60):
        job = lock_job_and_schedules(job_id)
        precondition()
        if job.state == JobState.CANCELLED:
            raise Conflict("The job is cancelled; submit it again to run it.")
        if job.state == JobState.PAUSED:
            before = _snapshot(job)
            schedules.resume_schedules(job)
            job.state, job.paused_at, job.paused_note = JobState.ACTIVE, None, ""
            job.save(update_fields=["state", "paused_at", "paused_note", "updated_at"])
            record_change("job.resumed", job, owner_id=job.owner_id, before=before, after=_snapshot(job))
            resumed = list(job.schedules.values_list("id", "next_fire_at"))
            transaction.on_commit(lambda: due_window.announce_due(resumed))
            transaction.on_commit(wakeups.wake_beat)


def cancel_execution(execution_id: UUID, *, by: str) -> None:
    """Cancel a waiting execution, or request the cancellation of a running one; idempotent."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        moved = transitions.cancel([execution_id], by=by)
        execution = Execution.objects.select_related("job").get(id=execution_id)
        if not moved and execution.state in TERMINAL and execution.state != State.CANCELLED:
            raise IllegalTransition(f"The execution has ended already ({execution.state}); there is nothing to cancel.")
        if moved:
            job, after = execution.job, {"state": execution.state, "cancel_requested": True}
            record_change("execution.cancelled", execution, owner_id=job.owner_id, name=job.name, after=after)
        completion.on_finished(moved)
        transaction.on_commit(wakeups.wake_beat)


def _cancel_work(job: Job, *, by: str) -> dict[str, object]:
    """Stop schedules, backfills and executions of a locked job; return details for the audit."""
    if job.state != JobState.CANCELLED:
        schedules.stop_schedules(job)
        backfill.cancel_backfills_of_job(job.id)
        job.state, job.paused_at, job.paused_note = JobState.CANCELLED, None, ""
        job.save(update_fields=["state", "paused_at", "paused_note", "updated_at"])
    unfinished = Execution.objects.filter(job_id=job.id, ended_at__isnull=True).values_list("id", flat=True)
    stopped = transitions.cancel(list(unfinished), by=by)
    completion.on_finished(stopped)
    transaction.on_commit(wakeups.wake_beat)
    return {"executions_cancelled": len(stopped)} if stopped else {}


def _snapshot(job: Job) -> dict[str, object]:
    return {"state": job.state, "note": job.paused_note}
