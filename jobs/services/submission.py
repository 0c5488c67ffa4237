"""Jobs on their way in, one or a thousand: first checked as a whole, with their programs stored, then stored together.

Whatever waits for the object store comes before the transaction, and the transaction stores all of the jobs or none;
the number of its statements does not grow with theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from jobs import due_window, wakeups
from jobs.errors import InvalidInput
from jobs.models import Calendar, Dependency, Job, JobVersion, Schedule, Trigger, VersionInput, VersionSecret
from jobs.services import calendars, job_changes, job_versions, schedules, teams, transitions
from jobs.services.artifacts import hold_artifacts
from jobs.services.audit_trail import record_all
from jobs.services.database import bounded
from jobs.services.dependency_editing import check_graph, check_upstreams, find_unrunnable, read_upstreams
from jobs.services.inserting import insert_rows
from jobs.services.job_spec import JobSpec, ScheduleSpec, SecretSpec, check_spec
from jobs.services.job_versions import Inputs, VersionFields
from jobs.services.network_use import check_network
from jobs.services.owner_limits import check_room_for_jobs
from jobs.services.secret_grants import check_sizes, read_sizes
from jobs.services.transitions import NewExecution


@dataclass(frozen=True, slots=True)
class PreparedJob:
    spec: JobSpec
    where: str  # before the names of its fields in the request
    version: VersionFields
    inputs: Inputs
    planned: Sequence[Schedule]


@dataclass(frozen=True, slots=True)
class Prepared:
    """Jobs of which nothing is stored but their programs."""

    owner: User
    jobs: Sequence[PreparedJob]
    now: datetime  # what the first instants of their schedules come after


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job with its version, and the rows beside them."""

    job: Job
    schedules: list[Schedule]
    dependencies: list[Dependency]
    inputs: list[VersionInput]
    secrets: list[VersionSecret]


def prepare_jobs(*, owner: User, specs: Sequence[JobSpec], where: Callable[[int], str] = lambda index: "") -> Prepared:
    """Refuses what cannot be stored; `where` each of them stands in the request is put before the name of a field.

    To be called outside a transaction: it may wait for the object store.
    """
    for index, spec in enumerate(specs):
        with naming(where(index)):
            check_spec(spec)
            check_network(owner, spec)
    found = calendars.read_calendars(owner.pk, _schedules(specs), lock=False)
    queues = job_versions.find_queues([spec.queue for spec in specs])
    upstreams = read_upstreams(owner.pk, (each for spec in specs for each in spec.dependencies))
    sizes = read_sizes(owner.pk, _secrets(specs), lock=False)
    own_teams = teams.find_teams(owner.pk, [spec.team for spec in specs])
    now = schedules.database_now()
    planned = []
    for index, spec in enumerate(specs):
        with naming(where(index)):
            calendars.check_calendars(spec.schedules, found)
            planned.append(_plan(spec, found, now))
            job_versions.pick_queue(spec.queue, queues)
            check_upstreams(spec.dependencies, upstreams)
            check_sizes(spec.secrets, sizes)
            teams.pick_team(spec.team, own_teams)
    # Last: nothing is stored for what is refused anyway.
    stored = job_versions.find_stored(owner, specs)
    jobs = []
    for index, spec in enumerate(specs):
        with naming(where(index)):
            program, inputs = job_versions.pick_program(spec, stored), job_versions.pick_inputs(spec, stored)
            job_versions.check_room(spec, program, inputs, sizes)
        version = job_versions.version_fields(spec, queues[spec.queue], program)
        jobs.append(PreparedJob(spec, where(index), version, inputs, planned[index]))
    return Prepared(owner, jobs, now)


def store_jobs(prepared: Prepared) -> list[StoredJob]:
    """In the order in which they were given; one with neither schedule nor dependency is executed at once."""
    with transaction.atomic(), bounded(statement_seconds=10):
        prepared = _with_locked_calendars(prepared)
        _lock_secrets(prepared)
        own_teams = teams.find_teams(prepared.owner.pk, [each.spec.team for each in prepared.jobs])
        check_room_for_jobs(prepared.owner.pk, len(prepared.jobs))
        stored = [_rows(prepared.owner, each, own_teams) for each in prepared.jobs]
        versions = [each.job.current_version for each in stored if each.job.current_version]
        inputs = [row for each in stored for row in each.inputs]
        planned = [row for each in stored for row in each.schedules]
        insert_rows([each.job for each in stored])
        insert_rows(versions)
        insert_rows(inputs)
        insert_rows([row for each in stored for row in each.secrets])
        hold_artifacts({version.artifact_id for version in versions} | {each.artifact_id for each in inputs})
        schedules.store_schedules(planned, prepared.now)
        insert_rows([row for each in stored for row in each.dependencies])
        _check_graphs(prepared, stored)
        at_once = [each.job.id for each in stored if not each.schedules and not each.dependencies]
        transitions.create_executions([NewExecution(job_id, Trigger.MANUAL) for job_id in at_once])
        record_all(
            [
                job_changes.created(own.job, each.spec, version.artifact, each.inputs)
                for own, version, each in zip(stored, versions, prepared.jobs, strict=True)
            ]
        )
        moments = [(schedule.id, schedule.next_fire_at) for schedule in planned]
        transaction.on_commit(lambda: due_window.announce(moments))
        transaction.on_commit(wakeups.wake_beat)
    return stored


def _rows(owner: User, prepared: PreparedJob, own_teams: Mapping[str, UUID]) -> StoredJob:
    spec = prepared.spec
    with naming(prepared.where):
        team_id = teams.pick_team(spec.team, own_teams)
    job = Job(owner=owner, name=spec.name, team_id=team_id)
    # Each names the other: who refers to what is checked when all of it is there.
    job.current_version = version = JobVersion(job=job, number=1, **prepared.version)
    for schedule in prepared.planned:
        schedule.job = job
    return StoredJob(
        job,
        list(prepared.planned),
        [Dependency(job=job, upstream_id=each.job, condition=each.condition) for each in spec.dependencies],
        [VersionInput(version=version, path=path, artifact=file) for path, file in prepared.inputs.items()],
        [VersionSecret(version=version, name=each.name, env=each.env, path=each.path) for each in spec.secrets],
    )


def _with_locked_calendars(prepared: Prepared) -> Prepared:
    """Planned once more, now that nobody can edit them: a schedule takes the dates of its calendar along."""
    wanted = list(_schedules([each.spec for each in prepared.jobs]))
    if all(schedule.calendar is None for schedule in wanted):
        return prepared
    found = calendars.read_calendars(prepared.owner.pk, wanted, lock=True)
    now = schedules.database_now()
    jobs = []
    for each in prepared.jobs:
        with naming(each.where):
            calendars.check_calendars(each.spec.schedules, found)
            jobs.append(replace(each, planned=_plan(each.spec, found, now)))
    return Prepared(prepared.owner, jobs, now)


def _lock_secrets(prepared: Prepared) -> None:
    """They are there still, and stay until the versions that name them are."""
    sizes = read_sizes(prepared.owner.pk, _secrets([each.spec for each in prepared.jobs]), lock=True)
    for each in prepared.jobs:
        with naming(each.where):
            check_sizes(each.spec.secrets, sizes)


def _check_graphs(prepared: Prepared, stored: Sequence[StoredJob]) -> None:
    """Nothing can run after a job that is new, so it closes no circle; and those that wait for the same are alike."""
    alike: dict[frozenset[UUID], tuple[Job, str]] = {}
    for own, each in zip(stored, prepared.jobs, strict=True):
        upstreams = frozenset(dependency.job for dependency in each.spec.dependencies)
        if len(upstreams) > 1 and not each.spec.schedules:
            alike.setdefault(upstreams, (own.job, each.where))
    # All at once; only when something is wrong, which of them it is.
    if alike and find_unrunnable([job.id for job, _ in alike.values()]):
        for job, where in alike.values():
            with naming(where):
                check_graph(job)


def _schedules(specs: Sequence[JobSpec]) -> Iterator[ScheduleSpec]:
    return (schedule for spec in specs for schedule in spec.schedules)


def _secrets(specs: Sequence[JobSpec]) -> Iterator[SecretSpec]:
    return (secret for spec in specs for secret in spec.secrets)


def _plan(spec: JobSpec, found: Mapping[str, Calendar], now: datetime) -> list[Schedule]:
    return [
        schedules.plan_schedule(index, wanted, now, calendar=found[wanted.calendar] if wanted.calendar else None)
        for index, wanted in enumerate(spec.schedules)
    ]


class naming:  # noqa: N801  a generator would cost each of a thousand jobs more than what is done within it
    """What is wrong is told by where it stands in the request."""

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, InvalidInput):
            raise type(error)(f"{self._where}{error.field}", error.message) from None
