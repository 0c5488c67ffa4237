"""Edits of jobs: what runs, when it fires and what it runs after, in one transaction.

Everything that is due is settled first, by what was in force until then; an edit is refused as a whole or committed as
a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from jobs import due_window, wakeups
from jobs.errors import Conflict, InvalidInput, NotFound
from jobs.models import Artifact, Calendar, Condition, Delivery, Execution, Job, JobState, JobVersion, Overlap, Queue
from jobs.retry_policy import parse_retry_policy
from jobs.services import artifacts, calendars, endings, job_changes, job_versions, schedules, teams, transitions
from jobs.services.audit_trail import record_all
from jobs.services.database import bounded
from jobs.services.dependency_editing import check_graph, edit_dependencies
from jobs.services.job_edit import KEEP, JobEdit
from jobs.services.job_spec import (
    DependencySpec,
    InputSpec,
    JobSpec,
    Requirements,
    ScheduleSpec,
    SecretSpec,
    check_spec,
)
from jobs.services.job_versions import Inputs
from jobs.services.locking import (
    lock_dependencies_of,
    lock_job_and_schedules,
    lock_placement,
    lock_unclaimed_with_network,
    lock_unfinished,
)
from jobs.services.network_use import check_network
from jobs.services.schedule_editing import Plan, apply_edits, plan_edits, spec_of
from jobs.services.secret_grants import check_grants, read_sizes


def edit_job(job_id: UUID, edit: JobEdit, *, when_locked: Callable[[], None] = lambda: None) -> None:
    """`when_locked` is called once nobody else can edit the job: what it raises refuses the edit."""
    job = Job.objects.select_related("owner").get(id=job_id)
    # Checked once before anything is stored or locked: most of what is refused is refused here.
    asked = _merged(job, edit)
    job_versions.find_queue(asked.queue)
    check_grants(job.owner_id, [] if edit.secrets is KEEP else edit.secrets, lock=False)
    _team(job.owner_id, edit)
    artifact, files, stdin = _program(job.owner, edit), _files(job.owner, edit), _stdin(job.owner, edit)
    with transaction.atomic(), bounded(statement_seconds=10):
        held = calendars.find_calendars(job.owner_id, [] if edit.schedules is KEEP else asked.schedules, lock=True)
        check_grants(job.owner_id, [] if edit.secrets is KEEP else edit.secrets, lock=True)
        team_id = _team(job.owner_id, edit)
        if edit.dependencies is not KEEP or edit.schedules is not KEEP:
            lock_dependencies_of(job.owner_id)
        job = lock_job_and_schedules(job_id)
        _check_editable(job)
        when_locked()
        before = _described(job)
        now = schedules.database_now()
        spec = _merged(job, edit)
        plan = _plan(job, edit, spec, held, now)
        schedules.settle_until(now, [job_id], ending=plan.ending)
        if edit.name is not KEEP:
            job.name = spec.name
        if edit.team is not KEEP:
            job.team_id = team_id
        job.save(update_fields=["name", "team", "updated_at"])
        program = artifact or _version(job).artifact
        inputs = _inputs(_version(job), files, stdin)
        job_versions.check_room(spec, program, inputs, read_sizes(job.owner_id, spec.secrets, lock=False))
        queue, left = job_versions.find_queue(spec.queue), _version(job).queue
        job_versions.put_in_force(job, job_versions.version_fields(spec, queue, program), inputs, spec.secrets)
        had_schedules = job.schedules.exists()
        moved = [(schedule.id, schedule.next_fire_at) for schedule in apply_edits(job, plan, now)]
        transaction.on_commit(lambda: due_window.announce(moved))
        if edit.dependencies is not KEEP:
            edit_dependencies(job, spec.dependencies)
        if had_schedules != bool(spec.schedules):
            check_graph(job)  # a job starts runs of its own if it has schedules, and else takes part in those of others
        if edit.network is False:
            _cancel_network(job)
        if queue != left:
            _move_waiting(job, queue)
        record_all([job_changes.edited(job, before, _described(job))])
        transaction.on_commit(wakeups.wake_beat)


def _cancel_network(job: Job) -> None:
    """What waits would run, or wait for a permission that is gone, in the version with a network that it fired with."""
    waiting = lock_unclaimed_with_network(job.id)
    if waiting:
        endings.settle_endings(transitions.cancel(waiting, by="network was taken from the job"))


def _move_waiting(job: Job, queue: Queue) -> None:
    """What waits goes along, or two pools would place for one job. What a worker has goes on where it is.

    Last of all: until this is committed, nothing of its former pool is placed.
    """
    unfinished = lock_unfinished(job.id)
    executions = Execution.objects.filter(id__in=unfinished)
    bound = executions.exclude(pinned_worker=None).exclude(pinned_worker__pool=queue.pool)
    if name := bound.values_list("pinned_worker__name", flat=True).first():
        raise InvalidInput(
            "queue",
            f"An execution of the job is to run on the worker {name}, which does not serve that queue;"
            " let it end, or cancel it.",
        )
    lock_placement(set(executions.values_list("queue_id", flat=True)))
    transitions.follow_queue(unfinished)


def _described(job: Job) -> dict[str, object]:
    """As it is stored by now: what is written otherwise and means the same is no change."""
    version = _version(job)
    return job_changes.described(_spec_of(job, _present(job)), version.artifact, job_versions.inputs_of(version))


def _present(job: Job) -> dict[UUID, ScheduleSpec]:
    return {schedule.id: spec_of(schedule) for schedule in job.schedules.order_by("id")}


def _merged(job: Job, edit: JobEdit) -> JobSpec:
    present = _present(job)
    spec = edit.merged(_spec_of(job, present), present)
    check_spec(spec)
    check_network(job.owner, spec)
    return spec


def _spec_of(job: Job, present: Mapping[UUID, ScheduleSpec]) -> JobSpec:
    version = _version(job)
    inputs = list(version.inputs.all())
    return JobSpec(
        name=job.name,
        runtime=version.runtime,
        artifact=version.artifact_id,
        args=version.args,
        env=version.env,
        stdin_artifact=next((each.artifact_id for each in inputs if each.path is None), None),
        inputs=[InputSpec(each.path, each.artifact_id) for each in inputs if each.path is not None],
        secrets=[SecretSpec(each.name, each.env, each.path) for each in version.secrets.all()],
        schedules=list(present.values()),
        dependencies=[DependencySpec(d.upstream_id, Condition(d.condition)) for d in job.dependencies.all()],
        priority=version.priority,
        queue=version.queue.name,
        team=job.team.name if job.team else None,
        requirements=Requirements(
            version.cpu, version.memory_mb, version.disk_mb, version.capabilities, version.resources
        ),
        timeout_seconds=version.timeout_seconds,
        deadline_seconds=version.deadline_seconds,
        retry=parse_retry_policy(version.retry),
        max_concurrency=version.max_concurrency,
        overlap=Overlap(version.overlap),
        delivery=Delivery(version.delivery),
        network=version.network,
    )


def _version(job: Job) -> JobVersion:
    if job.current_version is None:
        raise Conflict  # it is just being submitted
    return job.current_version


def _team(owner_id: int, edit: JobEdit) -> UUID | None:
    """Of an edit that says one: where a job is already it stays, whether or not its owner is a member still."""
    asked = None if edit.team is KEEP else edit.team
    return teams.pick_team(asked, teams.find_teams(owner_id, [asked]))


def _program(owner: User, edit: JobEdit) -> Artifact | None:
    """Stored before the transaction begins: that waits for the object store. None: the one that it has."""
    if edit.script is not KEEP:
        return artifacts.store_script(owner=owner, script=edit.script)
    return None if edit.artifact is KEEP else job_versions.find_artifact(owner, edit.artifact)


def _files(owner: User, edit: JobEdit) -> Inputs | None:
    return None if edit.inputs is KEEP else job_versions.find_files(owner, edit.inputs)


def _stdin(owner: User, edit: JobEdit) -> Inputs | None:
    """Stored before the transaction begins, as the program is."""
    if edit.stdin is KEEP and edit.stdin_artifact is KEEP:
        return None
    text = None if edit.stdin is KEEP else edit.stdin
    return job_versions.find_stdin(owner, text, None if edit.stdin_artifact is KEEP else edit.stdin_artifact)


def _inputs(version: JobVersion, files: Inputs | None, stdin: Inputs | None) -> Inputs:
    """What is not given is as it is."""
    present = job_versions.inputs_of(version)
    return {
        **({path: file for path, file in present.items() if path is not None} if files is None else files),
        **({path: file for path, file in present.items() if path is None} if stdin is None else stdin),
    }


def _check_editable(job: Job) -> None:
    if job.deleted_at is not None:
        raise NotFound
    if job.state == JobState.CANCELLED:
        raise Conflict("The job is cancelled; submit it anew to run it.")


def _plan(job: Job, edit: JobEdit, spec: JobSpec, held: Mapping[str, Calendar], now: datetime) -> Plan:
    if edit.schedules is KEEP:
        return Plan([], [], [])
    if any(schedule.calendar not in held for schedule in spec.schedules if schedule.calendar is not None):
        raise Conflict  # somebody else gave the job another calendar before we had its lock
    return plan_edits(job, edit.schedules, held, now)
