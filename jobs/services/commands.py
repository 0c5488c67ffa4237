"""What users ask for: submit, execute, cancel. API and admin are skins over these.

A command is refused as a whole before anything is stored, or it is committed as a whole before it is answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from jobs import due_window, sql, wakeups
from jobs.errors import Conflict, IllegalTransition, InvalidInput
from jobs.models import Artifact, Dependency, Execution, Job, JobState, JobVersion, Queue, Schedule, Trigger
from jobs.recurrence import Kind
from jobs.services import artifacts, backfilling, endings, schedules, transitions
from jobs.services.database import bounded
from jobs.services.job_spec import DependencySpec, JobSpec, check_spec
from jobs.services.transitions import NewExecution
from jobs.states import TERMINAL, State

UNFINISHED = [state.value for state in State if state not in TERMINAL]


@dataclass(frozen=True, slots=True)
class _Root:
    job_id: UUID


def submit_job(*, owner: User, spec: JobSpec) -> Job:
    """Stores a job; one with neither schedule nor dependency has its first execution at once."""
    check_spec(spec)
    now = schedules.database_now()
    planned = [schedules.plan_schedule(index, wanted, now) for index, wanted in enumerate(spec.schedules)]
    queue = Queue.objects.filter(name=spec.queue).first()
    if queue is None:
        raise InvalidInput("queue", "There is no such queue; GET /api/v1/queues lists them.")
    _check_upstreams(owner, spec.dependencies)
    artifact = _artifact(owner, spec)

    with transaction.atomic(), bounded(statement_seconds=10):
        job = Job.objects.create(owner=owner, name=spec.name)
        job.current_version = JobVersion.objects.create(
            job=job,
            number=1,
            artifact=artifact,
            runtime=spec.runtime,
            args=list(spec.args),
            env=dict(spec.env),
            queue=queue,
            priority=spec.priority,
            cpu=spec.requirements.cpu,
            memory_mb=spec.requirements.memory_mb,
            disk_mb=spec.requirements.disk_mb,
            capabilities=sorted(set(spec.requirements.capabilities)),
            timeout_seconds=spec.timeout_seconds,
            retry=asdict(spec.retry),
            max_concurrency=spec.max_concurrency,
            overlap=spec.overlap,
            delivery=spec.delivery,
        )
        job.save(update_fields=["current_version"])
        schedules.create_schedules(job, planned, now)
        Dependency.objects.bulk_create(
            Dependency(job=job, upstream_id=d.job, condition=d.condition) for d in spec.dependencies
        )
        if not spec.schedules and not spec.dependencies:
            transitions.create_executions([NewExecution(job.id, Trigger.MANUAL)])
        transaction.on_commit(lambda: due_window.announce((s.id, s.next_fire_at) for s in planned))
        transaction.on_commit(wakeups.wake_beat)
    return job


def execute_job(job_id: UUID) -> UUID:
    """A new execution now, whatever the schedules say; returns its id."""
    with transaction.atomic(), bounded(statement_seconds=5):
        if _lock_job(job_id).state == JobState.CANCELLED:
            raise Conflict("The job is cancelled; submit it anew to run it.")
        (execution_id,) = transitions.create_executions([NewExecution(job_id, Trigger.MANUAL)])
        transaction.on_commit(wakeups.wake_beat)
    return execution_id


def cancel_job(job_id: UUID, *, by: str) -> None:
    """No instant of it fires any more, what waits ends, what runs is stopped; doing it again changes nothing."""
    with transaction.atomic(), bounded(statement_seconds=10):
        job = _lock_job_and_schedules(job_id)
        if job.state != JobState.CANCELLED:
            schedules.stop_schedules(job)
            backfilling.stop_backfills(job_id)
            job.state, job.paused_at, job.paused_note = JobState.CANCELLED, None, ""
            job.save(update_fields=["state", "paused_at", "paused_note", "updated_at"])
        waiting = Execution.objects.filter(job_id=job_id, state__in=UNFINISHED).values_list("id", flat=True)
        endings.settle_endings(transitions.cancel(list(waiting), by=by))
        transaction.on_commit(wakeups.wake_beat)


def pause_job(job_id: UUID, *, note: str) -> None:
    """Its schedules do not fire until it is resumed; what was fired before runs on. Again: only the note changes."""
    with transaction.atomic(), bounded(statement_seconds=10):
        job = _lock_job_and_schedules(job_id)
        if job.state == JobState.CANCELLED:
            raise Conflict("The job is cancelled; there is nothing to pause.")
        if job.state == JobState.ACTIVE:
            job.paused_at = schedules.pause_schedules(job)
            job.state = JobState.PAUSED
        job.paused_note = note
        job.save(update_fields=["state", "paused_at", "paused_note", "updated_at"])


def resume_job(job_id: UUID) -> None:
    """Its schedules fire again from now on; the instants of the pause are counted as dropped. Twice is once."""
    with transaction.atomic(), bounded(statement_seconds=60):
        job = _lock_job_and_schedules(job_id)
        if job.state == JobState.CANCELLED:
            raise Conflict("The job is cancelled; submit it anew to run it.")
        if job.state == JobState.PAUSED:
            schedules.resume_schedules(job)
            job.state, job.paused_at, job.paused_note = JobState.ACTIVE, None, ""
            job.save(update_fields=["state", "paused_at", "paused_note", "updated_at"])
            resumed = list(job.schedules.values_list("id", "next_fire_at"))
            transaction.on_commit(lambda: due_window.announce(resumed))
            transaction.on_commit(wakeups.wake_beat)


def cancel_execution(execution_id: UUID, *, by: str) -> None:
    """Ends what waits and marks what runs; doing it again changes nothing, and what ended otherwise stays as it is."""
    with transaction.atomic(), bounded(statement_seconds=5):
        moved = transitions.cancel([execution_id], by=by)
        if not moved:
            state = Execution.objects.values_list("state", flat=True).get(id=execution_id)
            if state in TERMINAL and state != State.CANCELLED:
                raise IllegalTransition(f"The execution has ended already ({state}); there is nothing to cancel.")
        endings.settle_endings(moved)
        transaction.on_commit(wakeups.wake_beat)


def _lock_job_and_schedules(job_id: UUID) -> Job:
    """In the order of those who do it meanwhile, or the two would wait for each other.

    The end of a fixed delay's run holds the run and wants its schedule; a beat holds schedules and wants their job.
    """
    delayed = Execution.objects.filter(job_id=job_id, state__in=UNFINISHED, schedule__kind=Kind.DELAY)
    list(delayed.select_for_update(no_key=True, of=("self",)).order_by("id").values_list("id"))
    list(Schedule.objects.select_for_update(no_key=True).filter(job_id=job_id).order_by("id").values_list("id"))
    return _lock_job(job_id)


def _lock_job(job_id: UUID) -> Job:
    return Job.objects.select_for_update(no_key=True).get(id=job_id)


def _check_upstreams(owner: User, wanted: Sequence[DependencySpec]) -> None:
    """A new job has no dependents yet, so it closes no cycle; what it waits for must meet in one run."""
    if not wanted:
        return
    found = dict(Job.objects.filter(owner=owner, id__in=[d.job for d in wanted]).values_list("id", "state"))
    for index, dependency in enumerate(wanted):
        if dependency.job not in found:
            raise InvalidInput(f"dependencies.{index}.job", "There is no such job of yours.")
        if found[dependency.job] == JobState.CANCELLED:
            raise InvalidInput(f"dependencies.{index}.job", "That job is cancelled and will not run again.")
    if not sql.fetch("shared_roots", {"job_ids": list(found)}, _Root):
        raise InvalidInput(
            "dependencies", "These jobs never run together: they must all descend from one common first job."
        )


def _artifact(owner: User, spec: JobSpec) -> Artifact:
    if spec.script is not None:
        return artifacts.store_script(owner=owner, script=spec.script)
    artifact = Artifact.objects.filter(owner=owner, id__in=[spec.artifact]).first()
    if artifact is None:
        raise InvalidInput("artifact", "There is no such artifact of yours; announce it with POST /api/v1/artifacts.")
    if artifact.verified_at is None:
        raise InvalidInput(
            "artifact", "The artifact is not uploaded yet; upload it, then POST to its complete address."
        )
    return artifact
