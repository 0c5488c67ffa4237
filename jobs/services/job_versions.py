"""What runs: the immutable versions of a job, made from what was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from uuid import UUID

from django.contrib.auth.models import User

from jobs.errors import InvalidInput
from jobs.models import Artifact, Job, JobVersion, Queue, VersionInput
from jobs.retry_policy import parse_retry_policy
from jobs.services.artifacts import hold_artifacts, store_script, use_artifact, use_artifacts
from jobs.services.job_spec import InputSpec, JobSpec, SecretSpec
from jobs.services.secret_grants import file_sizes, grants_of, store_grants

VersionFields = Mapping[str, object]
# By path; None: standard input.
Inputs = Mapping[str | None, Artifact]
MEGABYTE = 1024 * 1024
PAGE_BYTES = 4096


def version_fields(spec: JobSpec, queue: Queue, artifact: Artifact) -> VersionFields:
    """The columns of the version that a spec asks for."""
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
        "retry": asdict(spec.retry),
        "max_concurrency": spec.max_concurrency,
        "overlap": spec.overlap,
        "delivery": spec.delivery,
        "network": spec.network,
    }


def put_in_force(job: Job, wanted: VersionFields, inputs: Inputs, secrets: Sequence[SecretSpec]) -> None:
    """Gives the job this version, unless the one in force says the same; the caller holds the job's lock."""
    current = job.current_version
    if current is not None:
        said = {name: getattr(current, name) for name in wanted} | {"retry": asdict(parse_retry_policy(current.retry))}
        if said == wanted and inputs_of(current) == inputs and grants_of(current) == set(secrets):
            return
    number = 1 if current is None else current.number + 1
    version = job.current_version = JobVersion.objects.create(job=job, number=number, **wanted)
    VersionInput.objects.bulk_create(
        VersionInput(version=version, path=path, artifact=artifact) for path, artifact in inputs.items()
    )
    store_grants(version, secrets)
    hold_artifacts([version.artifact_id, *(artifact.id for artifact in inputs.values())])
    job.save(update_fields=["current_version", "updated_at"])


def inputs_of(version: JobVersion) -> Inputs:
    return {each.path: each.artifact for each in version.inputs.select_related("artifact")}


def find_files(owner: User, inputs: Sequence[InputSpec]) -> dict[str | None, Artifact]:
    found = use_artifacts(owner=owner, artifact_ids={each.artifact for each in inputs})
    return {
        each.path: _uploaded(found.get(each.artifact), f"inputs.{index}.artifact") for index, each in enumerate(inputs)
    }


def find_stdin(owner: User, text: str | None, artifact_id: UUID | None) -> dict[str | None, Artifact]:
    """Nothing, if it has no standard input; to be called outside a transaction, as it may wait for the object store."""
    if text is not None:
        return {None: store_script(owner=owner, script=text)}
    if artifact_id is None:
        return {}
    return {None: _uploaded(use_artifact(owner=owner, artifact_id=artifact_id), "stdin_artifact")}


def check_room(owner_id: int, spec: JobSpec, program: Artifact, inputs: Inputs) -> None:
    """A program that does not fit into its own directory beside its files would fail on every worker.

    Its standard input is counted as if it lay there, too: a worker keeps both in memory.
    """
    sizes = [program.size, *(artifact.size for artifact in inputs.values()), *file_sizes(owner_id, spec.secrets)]
    needed = sum(-(-size // PAGE_BYTES) * PAGE_BYTES for size in sizes)
    if needed > max(spec.requirements.disk_mb, 1) * MEGABYTE:
        raise InvalidInput(
            "requirements.disk_mb",
            "The program, its input files, its secrets' files and its standard input need"
            f" {-(-needed // MEGABYTE)} MB; ask for so many.",
        )


def find_queue(name: str) -> Queue:
    queue = Queue.objects.filter(name=name).first()
    if queue is None:
        raise InvalidInput("queue", "There is no such queue; GET /api/v1/queues lists them.")
    return queue


def find_artifact(owner: User, artifact_id: UUID | None) -> Artifact:
    return _uploaded(use_artifact(owner=owner, artifact_id=artifact_id), "artifact")


def _uploaded(artifact: Artifact | None, field: str) -> Artifact:
    if artifact is None:
        raise InvalidInput(field, "There is no such artifact of yours; announce it with POST /api/v1/artifacts.")
    if artifact.verified_at is None:
        raise InvalidInput(field, "The artifact is not uploaded yet; upload it, then POST to its complete address.")
    return artifact
