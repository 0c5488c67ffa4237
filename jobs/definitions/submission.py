"""Submission of jobs, one or a thousand: validate, resolve references, store, announce.

`prepare_jobs` does whatever may wait for the object store, before the transaction. `store_jobs` stores all jobs or
none, and its number of statements does not grow with the number of jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from jobs.access import teams
from jobs.access.network_permission import check_network_permission
from jobs.access.quotas import check_dependents, check_job_quota
from jobs.access.secret_grants import check_may_grant, check_secret_sizes, read_secret_sizes
from jobs.audit.log import record_changes
from jobs.db import due_window, wakeups
from jobs.db.bulk_insert import insert_rows
from jobs.db.clock import database_now
from jobs.db.transactions import with_timeouts
from jobs.definitions import changes, versions
from jobs.definitions.dependency_graph import check_graph, check_upstreams, find_graph_problem, read_upstream_states
from jobs.definitions.versions import Inputs, QueueLookup, VersionFields
from jobs.domain.errors import InvalidInput
from jobs.domain.job_spec import JobSpec, ScheduleSpec, SecretSpec, check_spec
from jobs.execution import transitions
from jobs.execution.transitions import NewExecution
from jobs.models import (
    ALL_SECRETS,
    Calendar,
    Dependency,
    Job,
    JobVersion,
    Schedule,
    Trigger,
    VersionInput,
    VersionSecret,
)
from jobs.scheduling import calendars, schedules
from jobs.storage.artifacts import pin_artifacts


@dataclass(frozen=True, slots=True)
class PreparedJob:
    spec: JobSpec
    field_prefix: str  # of its field names in errors
    version: VersionFields
    inputs: Inputs
    planned: Sequence[Schedule]


@dataclass(frozen=True, slots=True)
class PreparedJobs:
    """Validated jobs; only their programs are stored yet."""

    owner: User
    jobs: Sequence[PreparedJob]
    now: datetime  # the first instants of their schedules come after it


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job with its version and the rows that refer to them."""

    job: Job
    version: JobVersion
    schedules: list[Schedule]
    dependencies: list[Dependency]
    inputs: list[VersionInput]
    secrets: list[VersionSecret]


@dataclass(frozen=True, slots=True)
class _References:
    """Rows that the specs name, read for all of them at once."""

    calendars: Mapping[str, Calendar]
    queues: QueueLookup
    upstreams: Mapping[UUID, str]
    secret_sizes: Mapping[str, int]
    teams: Mapping[str, UUID]


def prepare_jobs(
    *,
    owner: User,
    specs: Sequence[JobSpec],
    grantable_secrets: Collection[str] = (ALL_SECRETS,),
    field_prefix: Callable[[int], str] = lambda index: "",
) -> PreparedJobs:
    """Validate the specs, resolve what they name and store their programs.

    Call it outside a transaction: it may wait for the object store.
    `grantable_secrets`: the secrets that the caller may give to jobs.
    `field_prefix`: put before the field names in errors about the spec with that index.
    """
    wanted = [(field_prefix(index), spec) for index, spec in enumerate(specs)]
    for prefix, spec in wanted:
        with prefix_errors(prefix):
            check_spec(spec)
            check_may_grant(grantable_secrets, spec.secrets)
            check_network_permission(owner, spec)
    references = _read_references(owner, specs)
    now = references.queues.read_at
    planned = []
    for prefix, spec in wanted:
        with prefix_errors(prefix):
            planned.append(_resolve_references(spec, references, now))
    # Last, so that nothing is stored for a request that is refused.
    contents = versions.store_contents(owner, specs)
    jobs = []
    for (prefix, spec), schedules_of_job in zip(wanted, planned, strict=True):
        with prefix_errors(prefix):
            program, inputs = contents.pick_program(spec), contents.pick_inputs(spec)
            versions.check_disk_size(spec, program, inputs, references.secret_sizes)
        version = versions.version_fields(spec, references.queues.by_name[spec.queue], program)
        jobs.append(PreparedJob(spec, prefix, version, inputs, schedules_of_job))
    return PreparedJobs(owner, jobs, now)


def store_jobs(prepared: PreparedJobs) -> list[StoredJob]:
    """Store the jobs; execute those with neither schedules nor dependencies at once."""
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        prepared = _with_locked_calendars(prepared)
        _lock_secrets(prepared)
        own_teams = teams.find_teams(prepared.owner.pk, [each.spec.team for each in prepared.jobs])
        started = sum(not each.planned and not each.spec.dependencies for each in prepared.jobs)
        check_job_quota(prepared.owner.pk, len(prepared.jobs), started=started)
        stored = [_build_rows(prepared.owner, each, own_teams) for each in prepared.jobs]
        _insert_rows(prepared, stored)
        _check_graphs(prepared, stored)
        at_once = [each.job.id for each in stored if not each.schedules and not each.dependencies]
        transitions.create_executions([NewExecution(job_id, Trigger.MANUAL) for job_id in at_once])
        record_changes(
            [
                changes.describe_creation(row.job, each.spec, row.version.artifact, each.inputs)
                for row, each in zip(stored, prepared.jobs, strict=True)
            ]
        )
        due = [(schedule.id, schedule.next_fire_at) for each in stored for schedule in each.schedules]
        transaction.on_commit(lambda: _announce(due, any_at_once=bool(at_once)))
    return stored


def _announce(due: Collection[tuple[UUID, datetime | None]], *, any_at_once: bool) -> None:
    """Announce schedules; wake beat up unless all are due later than its longest sleep."""
    if due_window.announce_due(due) or any_at_once:
        wakeups.wake_beat()


def _read_references(owner: User, specs: Sequence[JobSpec]) -> _References:
    return _References(
        calendars.read_calendars(owner.pk, _iterate_schedules(specs), lock=False),
        versions.find_queues(owner, [spec.queue for spec in specs]),
        read_upstream_states(owner.pk, (each for spec in specs for each in spec.dependencies)),
        read_secret_sizes(owner.pk, _iterate_secrets(specs), lock=False),
        teams.find_teams(owner.pk, [spec.team for spec in specs]),
    )


def _resolve_references(spec: JobSpec, references: _References, now: datetime) -> list[Schedule]:
    """Refuse a spec that names missing rows; return its schedules."""
    planned = _plan_schedules(spec, references.calendars, now)
    references.queues.pick(spec.queue)
    check_upstreams(spec.dependencies, references.upstreams)
    check_secret_sizes(spec.secrets, references.secret_sizes)
    teams.resolve_team(spec.team, references.teams)
    return planned


def _plan_schedules(spec: JobSpec, found: Mapping[str, Calendar], now: datetime) -> list[Schedule]:
    calendars.check_calendars(spec.schedules, found)
    return [
        schedules.prepare_schedule(index, wanted, now, calendar=found[wanted.calendar] if wanted.calendar else None)
        for index, wanted in enumerate(spec.schedules)
    ]


def _with_locked_calendars(prepared: PreparedJobs) -> PreparedJobs:
    """Lock the calendars and plan the schedules again, since a schedule stores its calendar's dates."""
    wanted = list(_iterate_schedules([each.spec for each in prepared.jobs]))
    if all(schedule.calendar is None for schedule in wanted):
        return prepared
    found = calendars.read_calendars(prepared.owner.pk, wanted, lock=True)
    now = database_now()
    jobs = []
    for each in prepared.jobs:
        with prefix_errors(each.field_prefix):
            jobs.append(replace(each, planned=_plan_schedules(each.spec, found, now)))
    return PreparedJobs(prepared.owner, jobs, now)


def _lock_secrets(prepared: PreparedJobs) -> None:
    """Lock the secrets until the commit and check that all still exist."""
    sizes = read_secret_sizes(prepared.owner.pk, _iterate_secrets([each.spec for each in prepared.jobs]), lock=True)
    for each in prepared.jobs:
        with prefix_errors(each.field_prefix):
            check_secret_sizes(each.spec.secrets, sizes)


def _build_rows(owner: User, prepared: PreparedJob, own_teams: Mapping[str, UUID]) -> StoredJob:
    spec = prepared.spec
    with prefix_errors(prepared.field_prefix):
        team_id = teams.resolve_team(spec.team, own_teams)
    job = Job(owner=owner, name=spec.name, team_id=team_id)
    # Job and version refer to each other: the foreign key is checked when the transaction commits.
    job.current_version = version = JobVersion(job=job, number=1, **prepared.version)
    for schedule in prepared.planned:
        schedule.job = job
    return StoredJob(
        job,
        version,
        list(prepared.planned),
        [Dependency(job=job, upstream_id=each.job, condition=each.condition) for each in spec.dependencies],
        [VersionInput(version=version, path=path, artifact=file) for path, file in prepared.inputs.items()],
        [VersionSecret(version=version, name=each.name, env=each.env, path=each.path) for each in spec.secrets],
    )


def _insert_rows(prepared: PreparedJobs, stored: Sequence[StoredJob]) -> None:
    inputs = [row for each in stored for row in each.inputs]
    dependencies = [row for each in stored for row in each.dependencies]
    planned = [row for each in stored for row in each.schedules]
    insert_rows(
        [each.job for each in stored],
        [each.version for each in stored],
        inputs,
        [row for each in stored for row in each.secrets],
        planned,
        schedules.build_first_versions(planned, prepared.now),
        dependencies,
    )
    pin_artifacts({each.version.artifact_id for each in stored} | {each.artifact_id for each in inputs})
    check_dependents(prepared.owner.pk, {row.upstream_id for row in dependencies})


def _check_graphs(prepared: PreparedJobs, stored: Sequence[StoredJob]) -> None:
    """Refuse dependencies that can never be met.

    No job depends on a new one, so there is no cycle, and of jobs with the same upstreams one is enough to check.
    """
    candidates: dict[frozenset[UUID], tuple[Job, str]] = {}
    for row, each in zip(stored, prepared.jobs, strict=True):
        upstreams = frozenset(dependency.job for dependency in each.spec.dependencies)
        if len(upstreams) > 1 and not each.spec.schedules:
            candidates.setdefault(upstreams, (row.job, each.field_prefix))
    # One query for all of them; only a problem makes it worth finding out which job has it.
    if candidates and find_graph_problem([job.id for job, _ in candidates.values()]):
        for job, prefix in candidates.values():
            with prefix_errors(prefix):
                check_graph(job)


def _iterate_schedules(specs: Sequence[JobSpec]) -> Iterator[ScheduleSpec]:
    return (schedule for spec in specs for schedule in spec.schedules)


def _iterate_secrets(specs: Sequence[JobSpec]) -> Iterator[SecretSpec]:
    return (secret for spec in specs for secret in spec.secrets)


class prefix_errors:  # noqa: N801  a generator would cost each of a thousand jobs more than the work inside it
    """Put a prefix before the field name of an InvalidInput."""

    __slots__ = ("_prefix",)

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, InvalidInput):
            raise type(error)(f"{self._prefix}{error.field}", error.message) from None
