"""Edits of jobs: version, schedules and dependencies, all in one transaction or not at all.

Due instants fire first, by the schedules and the version that were in force until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from jobs.access import teams
from jobs.access.network_permission import check_network_permission
from jobs.access.secret_grants import check_grants, read_secret_sizes
from jobs.audit.log import record_changes
from jobs.db import due_window, wakeups
from jobs.db.clock import database_now
from jobs.db.locks import (
    lock_job_and_schedules,
    lock_owner_dependencies,
    lock_placement,
    lock_unclaimed_network_executions,
    lock_unfinished_executions,
)
from jobs.db.transactions import with_timeouts
from jobs.definitions import changes, versions
from jobs.definitions.dependency_graph import check_graph, edit_dependencies
from jobs.definitions.versions import Inputs
from jobs.domain.choices import Condition, Delivery, Overlap
from jobs.domain.errors import Conflict, InvalidInput, NotFound
from jobs.domain.job_edit import KEEP, JobEdit
from jobs.domain.job_spec import DependencySpec, InputSpec, JobSpec, Requirements, ScheduleSpec, SecretSpec, check_spec
from jobs.domain.retry_policy import parse_retry_policy
from jobs.execution import completion, parking, transitions
from jobs.models import ALL_SECRETS, Artifact, Calendar, Execution, Job, JobState, JobVersion, Queue, Schedule
from jobs.scheduling import calendars, schedules
from jobs.scheduling.editing import EditPlan, apply_edits, plan_edits, to_schedule_spec
from jobs.scheduling.firing import fire_backlog


@dataclass(frozen=True, slots=True)
class _NewContents:
    """What an edit replaces of the program and its inputs; None keeps the present."""

    program: Artifact | None
    files: Inputs | None
    stdin: Inputs | None

    def merge_inputs(self, present: Inputs) -> Inputs:
        kept = {path: file for path, file in present.items() if (self.stdin if path is None else self.files) is None}
        return {**kept, **(self.files or {}), **(self.stdin or {})}


def edit_job(
    job_id: UUID,
    edit: JobEdit,
    *,
    grantable_secrets: Collection[str] = (ALL_SECRETS,),
    precondition: Callable[[], None] = lambda: None,
) -> None:
    """Edit a job.

    `grantable_secrets`: the secrets that the caller may give to a new version.
    `precondition`: called once the job is locked; what it raises refuses the edit.
    """
    job = Job.objects.select_related("owner").get(id=job_id)
    # Checked here without locks, which refuses most bad edits before anything is stored, and again under the locks.
    spec = _merge_edit(job, edit)
    _find_queue(job, spec.queue)
    check_grants(job.owner_id, [] if edit.secrets is KEEP else edit.secrets, lock=False)
    _find_team(job.owner_id, edit)
    contents = _store_contents(job.owner, edit, spec)
    fire_backlog(Schedule.objects.filter(job_id=job_id))
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        locked_calendars = calendars.find_calendars(
            job.owner_id, [] if edit.schedules is KEEP else spec.schedules, lock=True
        )
        check_grants(job.owner_id, [] if edit.secrets is KEEP else edit.secrets, lock=True)
        team_id = _find_team(job.owner_id, edit)
        if edit.dependencies is not KEEP or edit.schedules is not KEEP:
            lock_owner_dependencies(job.owner_id)
        job = lock_job_and_schedules(job_id)
        _check_editable(job)
        precondition()
        before = _snapshot(job)
        now = database_now()
        spec = _merge_edit(job, edit)
        plan = _plan_schedule_edits(job, edit, spec, locked_calendars, now)
        schedules.fire_until(now, [job_id], ending=plan.ending)
        if edit.name is not KEEP:
            job.name = spec.name
        if edit.team is not KEEP:
            job.team_id = team_id
        job.save(update_fields=["name", "team", "updated_at"])
        former_queue = _current_version(job).queue
        queue = _find_queue(job, spec.queue)
        _apply_version(job, spec, queue, contents, grantable_secrets)
        had_schedules = job.schedules.exists()
        moved = [(schedule.id, schedule.next_fire_at) for schedule in apply_edits(job, plan, now)]
        transaction.on_commit(lambda: due_window.announce_due(moved))
        if edit.dependencies is not KEEP:
            edit_dependencies(job, spec.dependencies)
        if had_schedules != bool(spec.schedules):
            check_graph(job)  # a job with schedules starts runs of its own instead of joining those of its upstreams
        if edit.network is False:
            _cancel_waiting_with_network(job)
        if edit.max_concurrency is not KEEP:
            parking.unpark([job.id])
        if queue != former_queue:
            _move_waiting_executions(job, queue)
        record_changes([changes.describe_edit(job, before, _snapshot(job))])
        transaction.on_commit(wakeups.wake_beat)


def _find_queue(job: Job, name: str) -> Queue:
    """Return the queue; staying in the present one needs no permission."""
    present = _current_version(job).queue
    return present if name == present.name else versions.find_queues(job.owner, [name]).pick(name)


def _store_contents(owner: User, edit: JobEdit, spec: JobSpec) -> _NewContents:
    """Store the edit's program and inputs; outside a transaction, as it may wait."""
    new_program = edit.script is not KEEP or edit.artifact is not KEEP
    new_stdin = edit.stdin is not KEEP or edit.stdin_artifact is not KEEP
    new_files = edit.inputs is not KEEP
    # The present artifacts are pinned by the current version, and the owner may have deleted them since.
    spec = replace(
        spec,
        artifact=spec.artifact if new_program else None,
        inputs=spec.inputs if new_files else [],
        stdin_artifact=spec.stdin_artifact if new_stdin else None,
    )
    contents = versions.store_contents(owner, [spec])
    return _NewContents(
        contents.pick_program(spec) if new_program else None,
        contents.pick_files(spec) if new_files else None,
        contents.pick_stdin(spec) if new_stdin else None,
    )


def _apply_version(
    job: Job, spec: JobSpec, queue: Queue, contents: _NewContents, grantable_secrets: Collection[str]
) -> None:
    current = _current_version(job)
    program = contents.program or current.artifact
    inputs = contents.merge_inputs(versions.read_inputs(current))
    versions.check_disk_size(spec, program, inputs, read_secret_sizes(job.owner_id, spec.secrets, lock=False))
    wanted = versions.version_fields(spec, queue, program)
    if versions.replace_version(job, current, wanted, inputs, spec.secrets, grantable_secrets=grantable_secrets):
        # An owner who has left the queue's team may rename the job, but not run something else there.
        versions.find_queues(job.owner, [spec.queue]).pick(spec.queue)


def _cancel_waiting_with_network(job: Job) -> None:
    """Cancel unclaimed executions of versions with network access, which may no longer run."""
    waiting = lock_unclaimed_network_executions(job.id)
    if waiting:
        completion.on_finished(transitions.cancel(waiting, by="network was taken from the job"))


def _move_waiting_executions(job: Job, queue: Queue) -> None:
    """Move waiting executions to the new queue, or two pools would place for one job.

    Claimed ones stay with their worker. This comes last, since it stops placement in the former pool until the commit.
    """
    unfinished = lock_unfinished_executions(job.id)
    executions = Execution.objects.filter(id__in=unfinished)
    pinned = executions.exclude(pinned_worker=None).exclude(pinned_worker__pool=queue.pool)
    if name := pinned.values_list("pinned_worker__name", flat=True).first():
        raise InvalidInput(
            "queue",
            f"An execution of the job is pinned to the worker {name}, which does not serve that queue;"
            " wait until it finishes, or cancel it.",
        )
    lock_placement(set(executions.values_list("queue_id", flat=True)))
    transitions.move_to_current_queue(unfinished)


def _snapshot(job: Job) -> dict[str, object]:
    """Return the stored values: a different spelling of a value is no change."""
    version = _current_version(job)
    return changes.snapshot_job(
        _to_job_spec(job, _read_schedule_specs(job)), version.artifact, versions.read_inputs(version)
    )


def _read_schedule_specs(job: Job) -> dict[UUID, ScheduleSpec]:
    return {schedule.id: to_schedule_spec(schedule) for schedule in job.schedules.order_by("id")}


def _merge_edit(job: Job, edit: JobEdit) -> JobSpec:
    present = _read_schedule_specs(job)
    spec = edit.apply_to(_to_job_spec(job, present), present)
    check_spec(spec)
    check_network_permission(job.owner, spec)
    return spec


def _to_job_spec(job: Job, present: Mapping[UUID, ScheduleSpec]) -> JobSpec:
    version = _current_version(job)
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


def _current_version(job: Job) -> JobVersion:
    if job.current_version is None:
        raise Conflict  # its submission is not committed yet
    return job.current_version


def _find_team(owner_id: int, edit: JobEdit) -> UUID | None:
    """Return the team that the edit names; staying in the present one needs no membership."""
    name = None if edit.team is KEEP else edit.team
    return teams.resolve_team(name, teams.find_teams(owner_id, [name]))


def _check_editable(job: Job) -> None:
    if job.deleted_at is not None:
        raise NotFound
    if job.state == JobState.CANCELLED:
        raise Conflict("The job is cancelled; submit it again to run it.")


def _plan_schedule_edits(
    job: Job, edit: JobEdit, spec: JobSpec, locked: Mapping[str, Calendar], now: datetime
) -> EditPlan:
    if edit.schedules is KEEP:
        return EditPlan([], [], [])
    if any(schedule.calendar not in locked for schedule in spec.schedules if schedule.calendar is not None):
        raise Conflict  # a concurrent edit gave the job another calendar before this one locked it
    return plan_edits(job, edit.schedules, locked, now)
