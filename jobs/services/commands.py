"""What users ask for: submit, execute, pause, cancel, delete. API and admin are skins over these.

A command is refused as a whole before anything is stored, or it is committed as a whole before it is answered.
`when_locked` is called once nobody else can edit the job: what it raises refuses the command.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from jobs import due_window, wakeups
from jobs.errors import Conflict, IllegalTransition, NotFound
from jobs.models import Execution, Job, JobState, Trigger
from jobs.services import backfilling, endings, schedules, submission, transitions
from jobs.services.audit_trail import record
from jobs.services.database import bounded
from jobs.services.job_spec import JobSpec
from jobs.services.locking import UNFINISHED, lock_job, lock_job_and_schedules
from jobs.services.placement import check_pin
from jobs.services.transitions import NewExecution
from jobs.states import TERMINAL, State


def submit_job(*, owner: User, spec: JobSpec) -> Job:
    """Stores a job; one with neither schedule nor dependency has its first execution at once."""
    (stored,) = submission.store_jobs(submission.prepare_jobs(owner=owner, specs=[spec]))
    return stored.job


def execute_job(job_id: UUID, *, worker_id: UUID | None = None) -> UUID:
    """A new execution now, whatever the schedules say, on that worker or on any; returns its id."""
    with transaction.atomic(), bounded(statement_seconds=5):
        job = lock_job(job_id)
        if job.state == JobState.CANCELLED:
            raise Conflict("The job is cancelled; submit it anew to run it.")
        check_pin(job_id, worker_id)
        (execution_id,) = transitions.create_executions(
            [NewExecution(job_id, Trigger.MANUAL, pinned_worker_id=worker_id)]
        )
        pin = {} if worker_id is None else {"worker": worker_id}
        record("job.executed", job, owner_id=job.owner_id, after={"execution": execution_id} | pin)
        transaction.on_commit(wakeups.wake_beat)
    return execution_id


def cancel_job(job_id: UUID, *, by: str, when_locked: Callable[[], None] = lambda: None) -> None:
    """No instant of it fires any more, what waits ends, what runs is stopped; doing it again changes nothing."""
    with transaction.atomic(), bounded(statement_seconds=10):
        job = lock_job_and_schedules(job_id)
        when_locked()
        before, stopped = _told(job), _cancel(job, by=by)
        record("job.cancelled", job, owner_id=job.owner_id, before=before, after=_told(job) | stopped)


def delete_job(job_id: UUID, *, by: str, when_locked: Callable[[], None] = lambda: None) -> None:
    """Cancels it and hides it; its executions and its schedules' history stay for as long as history is kept."""
    with transaction.atomic(), bounded(statement_seconds=10):
        job = lock_job_and_schedules(job_id)
        if job.deleted_at is not None:
            raise NotFound
        when_locked()
        before, stopped = _told(job), _cancel(job, by=by)
        job.deleted_at = schedules.database_now()
        job.save(update_fields=["deleted_at", "updated_at"])
        schedules.delete_schedules(schedules.locked(job), job.deleted_at)
        record("job.deleted", job, owner_id=job.owner_id, before=before, after=_told(job) | stopped | {"deleted": True})


def pause_job(job_id: UUID, *, note: str, when_locked: Callable[[], None] = lambda: None) -> None:
    """Its schedules do not fire until it is resumed; what was fired before runs on. Again: only the note changes."""
    with transaction.atomic(), bounded(statement_seconds=10):
        job = lock_job_and_schedules(job_id)
        when_locked()
        if job.state == JobState.CANCELLED:
            raise Conflict("The job is cancelled; there is nothing to pause.")
        before = _told(job)
        if job.state == JobState.ACTIVE:
            job.paused_at = schedules.pause_schedules(job)
            job.state = JobState.PAUSED
        job.paused_note = note
        job.save(update_fields=["state", "paused_at", "paused_note", "updated_at"])
        record("job.paused", job, owner_id=job.owner_id, before=before, after=_told(job))


def resume_job(job_id: UUID, *, when_locked: Callable[[], None] = lambda: None) -> None:
    """Its schedules fire again from now on; the instants of the pause are counted as dropped. Twice is once."""
    with transaction.atomic(), bounded(statement_seconds=60):
        job = lock_job_and_schedules(job_id)
        when_locked()
        if job.state == JobState.CANCELLED:
            raise Conflict("The job is cancelled; submit it anew to run it.")
        if job.state == JobState.PAUSED:
            before = _told(job)
            schedules.resume_schedules(job)
            job.state, job.paused_at, job.paused_note = JobState.ACTIVE, None, ""
            job.save(update_fields=["state", "paused_at", "paused_note", "updated_at"])
            record("job.resumed", job, owner_id=job.owner_id, before=before, after=_told(job))
            resumed = list(job.schedules.values_list("id", "next_fire_at"))
            transaction.on_commit(lambda: due_window.announce(resumed))
            transaction.on_commit(wakeups.wake_beat)


def cancel_execution(execution_id: UUID, *, by: str) -> None:
    """Ends what waits and marks what runs; doing it again changes nothing, and what ended otherwise stays as it is."""
    with transaction.atomic(), bounded(statement_seconds=5):
        moved = transitions.cancel([execution_id], by=by)
        execution = Execution.objects.select_related("job").get(id=execution_id)
        if not moved and execution.state in TERMINAL and execution.state != State.CANCELLED:
            raise IllegalTransition(f"The execution has ended already ({execution.state}); there is nothing to cancel.")
        if moved:
            job, became = execution.job, {"state": execution.state, "cancel_requested": True}
            record("execution.cancelled", execution, owner_id=job.owner_id, name=job.name, after=became)
        endings.settle_endings(moved)
        transaction.on_commit(wakeups.wake_beat)


def _cancel(job: Job, *, by: str) -> dict[str, object]:
    """What else was stopped with it, for the audit."""
    if job.state != JobState.CANCELLED:
        schedules.stop_schedules(job)
        backfilling.stop_backfills(job.id)
        job.state, job.paused_at, job.paused_note = JobState.CANCELLED, None, ""
        job.save(update_fields=["state", "paused_at", "paused_note", "updated_at"])
    waiting = Execution.objects.filter(job_id=job.id, state__in=UNFINISHED).values_list("id", flat=True)
    stopped = transitions.cancel(list(waiting), by=by)
    endings.settle_endings(stopped)
    transaction.on_commit(wakeups.wake_beat)
    return {"executions_cancelled": len(stopped)} if stopped else {}


def _told(job: Job) -> dict[str, object]:
    """Of a pause, a resumption, a cancellation: what the audit compares."""
    return {"state": job.state, "note": job.paused_note}
