"""Immutable versions of a job: what runs, built from a spec."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection

from jobs.access.secret_grants import check_may_grant, read_grants, store_grants
from jobs.db import sql
from jobs.domain.errors import InvalidInput, NotPermitted
from jobs.domain.job_spec import JobSpec, SecretSpec
from jobs.domain.retry_policy import dump_retry_policy, parse_retry_policy
from jobs.models import Artifact, Job, JobVersion, Membership, Queue, VersionInput
from jobs.models.visibility import is_operator
from jobs.storage.artifacts import pin_artifacts, retain_artifacts, store_scripts

VersionFields = Mapping[str, object]
# By path; the key None is standard input.
Inputs = Mapping[str | None, Artifact]
MEGABYTE = 1024 * 1024
PAGE_BYTES = 4096


def version_fields(spec: JobSpec, queue: Queue, artifact: Artifact) -> VersionFields:
    """Return the columns of the version that a spec describes."""
    return {
        "artifact": artifact,
        "runtime": spec.runtime,
        "args": list(spec.args),
        "env": dict(spec.env),
        "queue": queue,
        "priority": spec.priority,
        "cpu": spec.requirements.cpu,
        "memory_mb": spec.requirements.memory_mb,
        "disk_mb": spec.requirements.disk_mb,
        "capabilities": sorted(set(spec.requirements.capabilities)),
        "resources": dict(spec.requirements.resources),
        "timeout_seconds": spec.timeout_seconds,
        "deadline_seconds": spec.deadline_seconds,
        "retry": dump_retry_policy(spec.retry),
        "max_concurrency": spec.max_concurrency,
        "overlap": spec.overlap,
        "delivery": spec.delivery,
        "network": spec.network,
    }


def replace_version(
    job: Job,
    current: JobVersion,
    wanted: VersionFields,
    inputs: Inputs,
    secrets: Sequence[SecretSpec],
    *,
    grantable_secrets: Collection[str],
) -> bool:
    """Create the next version of a locked job; return False if the current one is equal."""
    present = {name: getattr(current, name) for name in wanted}
    present["retry"] = dump_retry_policy(parse_retry_policy(current.retry))
    if present == wanted and read_inputs(current) == inputs and read_grants(current) == set(secrets):
        return False
    check_may_grant(grantable_secrets, secrets)
    version = job.current_version = JobVersion.objects.create(job=job, number=current.number + 1, **wanted)
    VersionInput.objects.bulk_create(
        VersionInput(version=version, path=path, artifact=artifact) for path, artifact in inputs.items()
    )
    store_grants(version, secrets)
    pin_artifacts([version.artifact_id, *(artifact.id for artifact in inputs.values())])
    job.save(update_fields=["current_version", "updated_at"])
    return True


def read_inputs(version: JobVersion) -> Inputs:
    return {each.path: each.artifact for each in version.inputs.select_related("artifact")}


@dataclass(frozen=True, slots=True)
class StoredContents:
    """Programs and their inputs: the texts of specs by their content, uploaded artifacts by id."""

    texts: Mapping[str, Artifact]
    uploads: Mapping[UUID, Artifact]

    def pick_program(self, spec: JobSpec) -> Artifact:
        if spec.script is not None:
            return self.texts[spec.script]
        return self._pick_upload(spec.artifact, "artifact")

    def pick_inputs(self, spec: JobSpec) -> Inputs:
        return {**self.pick_files(spec), **self.pick_stdin(spec)}

    def pick_files(self, spec: JobSpec) -> Inputs:
        return {
            each.path: self._pick_upload(each.artifact, f"inputs.{index}.artifact")
            for index, each in enumerate(spec.inputs)
        }

    def pick_stdin(self, spec: JobSpec) -> Inputs:
        """Return an empty mapping if the spec has no standard input."""
        if spec.stdin is not None:
            return {None: self.texts[spec.stdin]}
        return {} if spec.stdin_artifact is None else {None: self._pick_upload(spec.stdin_artifact, "stdin_artifact")}

    def _pick_upload(self, artifact_id: UUID | None, field: str) -> Artifact:
        artifact = self.uploads.get(artifact_id) if artifact_id else None
        if artifact is None:
            raise InvalidInput(field, "There is no such artifact of yours; announce it with POST /api/v1/artifacts.")
        if artifact.verified_at is None:
            raise InvalidInput(field, "The artifact is not uploaded yet; upload it, then POST to its complete address.")
        return artifact


def store_contents(owner: User, specs: Sequence[JobSpec]) -> StoredContents:
    """Store the texts and retain the uploads of any number of specs.

    Call it outside a transaction: it may wait for the object store.
    """
    texts = {text for spec in specs for text in (spec.script, spec.stdin) if text is not None}
    ids = {own for spec in specs for own in (spec.artifact, spec.stdin_artifact) if own is not None}
    ids |= {each.artifact for spec in specs for each in spec.inputs}
    return StoredContents(
        store_scripts(owner=owner, scripts=texts) if texts else {},
        retain_artifacts(owner=owner, artifact_ids=ids) if ids else {},
    )


def check_disk_size(spec: JobSpec, program: Artifact, inputs: Inputs, secret_sizes: Mapping[str, int]) -> None:
    """Refuse a program that does not fit into its directory with its files.

    It would fail on every worker. Standard input counts although it is no file: a worker keeps both in memory.
    """
    files = [secret_sizes.get(each.name, 0) for each in spec.secrets if each.path is not None]
    sizes = [program.size, *(artifact.size for artifact in inputs.values()), *files]
    needed = sum(-(-size // PAGE_BYTES) * PAGE_BYTES for size in sizes)
    if needed > max(spec.requirements.disk_mb, 1) * MEGABYTE:
        raise InvalidInput(
            "requirements.disk_mb",
            "The program, its input files, its secrets' files and its standard input need"
            f" {-(-needed // MEGABYTE)} MB; request at least that.",
        )


@dataclass(frozen=True, slots=True)
class QueueLookup:
    by_name: Mapping[str, Queue]
    closed: frozenset[str]  # names of queues of teams that the owner is not a member of
    read_at: datetime  # by the database's clock

    def pick(self, name: str) -> Queue:
        """Return the queue; InvalidInput if there is none, NotPermitted if the owner may not use it."""
        if name not in self.by_name:
            raise InvalidInput("queue", "There is no such queue; GET /api/v1/queues lists them.")
        queue = self.by_name[name]
        if name in self.closed and queue.team is not None:
            raise NotPermitted(
                "queue",
                f"The queue {name!r} takes jobs of members of the team {queue.team.name!r} only, and the job's owner is"
                " not one of them; choose another queue, or ask staff to be added to the team.",
            )
        return queue


def find_queues(owner: User, names: Collection[str]) -> QueueLookup:
    rows = sql.fetch("find_queues", {"names": sorted(set(names))}, _QueueRow)
    found = {row.name: _build_queue(row) for row in rows if row.id is not None}
    teams = {queue.team_id for queue in found.values() if queue.team_id is not None}
    if not teams or is_operator(owner):
        return QueueLookup(found, frozenset(), rows[0].read_at)
    own = set(Membership.objects.filter(user=owner, team_id__in=teams).values_list("team_id", flat=True))
    closed = frozenset(n for n, q in found.items() if q.team_id is not None and q.team_id not in own)
    return QueueLookup(found, closed, rows[0].read_at)


@dataclass(frozen=True, slots=True)
class _QueueRow:
    read_at: datetime
    id: UUID | None  # None in the only row if there is none of these queues
    name: str
    team_id: UUID | None


def _build_queue(row: _QueueRow) -> Queue:
    """Build a queue whose other fields are deferred."""
    queue: Queue = Queue.from_db(connection.alias, ("id", "name", "team_id"), (row.id, row.name, row.team_id))
    return queue
