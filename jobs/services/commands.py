"""What users ask for: submit, execute, cancel. API and admin are skins over these.

A command is refused as a whole before anything is stored, or it is committed as a whole before it is answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection, transaction

from jobs import sql, wakeups
from jobs.errors import Conflict, IllegalTransition, InvalidInput
from jobs.models import Artifact, Dependency, Execution, Job, JobState, JobVersion, Queue, Schedule, Trigger
from jobs.models.ids import new_id
from jobs.recurrence import EARLIEST, Kind, jittered, parse_recurrence
from jobs.services import artifacts, dependencies, transitions
from jobs.services.database import bounded
from jobs.services.job_spec import DependencySpec, JobSpec, ScheduleSpec, check_spec
from jobs.services.transitions import NewExecution
from jobs.states import TERMINAL, State

# The names under which users write the three kinds.
KIND_FIELDS = {Kind.CRON: "cron", Kind.EVERY: "every_seconds", Kind.AT: "at"}


@dataclass(frozen=True, slots=True)
class _Root:
    job_id: UUID


def submit_job(*, owner: User, spec: JobSpec) -> Job:
    """Stores a job; one with neither schedule nor dependency has its first execution at once."""
    check_spec(spec)
    now = _database_now()
    schedules = [_schedule(index, wanted, now) for index, wanted in enumerate(spec.schedules)]
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
            delivery=spec.delivery,
        )
        job.save(update_fields=["current_version"])
        for schedule in schedules:
            schedule.job = job
        Schedule.objects.bulk_create(schedules)
        Dependency.objects.bulk_create(
            Dependency(job=job, upstream_id=d.job, condition=d.condition) for d in spec.dependencies
        )
        if not spec.schedules and not spec.dependencies:
            transitions.create_executions([NewExecution(job.id, Trigger.MANUAL)])
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
        job = _lock_job(job_id)
        # A beat that is firing holds these rows: after the lock its executions are committed, and cancelled below.
        list(Schedule.objects.select_for_update(no_key=True).filter(job_id=job_id).order_by("id").values_list("id"))
        Schedule.objects.filter(job_id=job_id).update(next_instant=None, next_fire_at=None)
        if job.state != JobState.CANCELLED:
            job.state = JobState.CANCELLED
            job.save(update_fields=["state", "updated_at"])
        unfinished = [state.value for state in State if state not in TERMINAL]
        waiting = Execution.objects.filter(job_id=job_id, state__in=unfinished).values_list("id", flat=True)
        dependencies.resolve_dependents(transitions.cancel(list(waiting), by=by))
        transaction.on_commit(wakeups.wake_beat)


def cancel_execution(execution_id: UUID, *, by: str) -> None:
    """Ends what waits and marks what runs; doing it again changes nothing, and what ended otherwise stays as it is."""
    with transaction.atomic(), bounded(statement_seconds=5):
        moved = transitions.cancel([execution_id], by=by)
        if not moved:
            state = Execution.objects.values_list("state", flat=True).get(id=execution_id)
            if state in TERMINAL and state != State.CANCELLED:
                raise IllegalTransition(f"The execution has ended already ({state}); there is nothing to cancel.")
        dependencies.resolve_dependents(moved)
        transaction.on_commit(wakeups.wake_beat)


def _lock_job(job_id: UUID) -> Job:
    return Job.objects.select_for_update(no_key=True).get(id=job_id)


def _database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def _schedule(index: int, wanted: ScheduleSpec, now: datetime) -> Schedule:
    written = KIND_FIELDS[wanted.kind]
    try:
        recurrence = parse_recurrence(
            kind=wanted.kind,
            expression=wanted.expression,
            timezone=wanted.timezone,
            # A single instant needs no start; with one, a past instant would be called outside its bounds.
            starts_at=wanted.starts_at or (EARLIEST if wanted.kind is Kind.AT else now),
            ends_at=wanted.ends_at,
        )
    except InvalidInput as error:
        name = written if error.field in ("expression", "kind") else error.field
        raise InvalidInput(f"schedules.{index}.{name}", error.message) from None
    first = recurrence.next_after(now)
    if first is None:
        raise InvalidInput(
            f"schedules.{index}.{written}", "The schedule lies in the past: it has no instant left; choose a later one."
        )
    schedule_id = new_id()
    return Schedule(
        id=schedule_id,
        kind=recurrence.kind.value,
        expression=recurrence.expression,
        timezone=recurrence.timezone,
        starts_at=wanted.starts_at or now,
        ends_at=recurrence.ends_at,
        jitter_seconds=wanted.jitter_seconds,
        catch_up=wanted.catch_up.value,
        catch_up_window_seconds=wanted.catch_up_window_seconds,
        next_instant=first,
        next_fire_at=jittered(schedule_id, first, wanted.jitter_seconds),
    )


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
