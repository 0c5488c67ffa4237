"""What runs: the immutable versions of a job, made from what was asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import User

from jobs.errors import InvalidInput
from jobs.models import Artifact, Job, JobVersion, Queue, VersionInput
from jobs.retry_policy import parse_retry_policy, policy_values
from jobs.services.artifacts import hold_artifacts, store_script, store_scripts, use_artifact, use_artifacts
from jobs.services.job_spec import InputSpec, JobSpec, SecretSpec
from jobs.services.secret_grants import grants_of, store_grants

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
        "retry": policy_values(spec.retry),
        "max_concurrency": spec.max_concurrency,
        "overlap": spec.overlap,
        "delivery": spec.delivery,
        "network": spec.network,
    }


def put_in_force(job: Job, wanted: VersionFields, inputs: Inputs, secrets: Sequence[SecretSpec]) -> None:
    """Gives the job this version, unless the one in force says the same; the caller holds the job's lock."""
    current = job.current_version
    if current is not None:
        said = {name: getattr(current, name) for name in wanted}
        said["retry"] = policy_values(parse_retry_policy(current.retry))
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
    return _pick_files(inputs, use_artifacts(owner=owner, artifact_ids={each.artifact for each in inputs}))


def find_stdin(owner: User, text: str | None, artifact_id: UUID | None) -> dict[str | None, Artifact]:
    """Nothing, if it has no standard input; to be called outside a transaction, as it may wait for the object store."""
    if text is not None:
        return {None: store_script(owner=owner, script=text)}
    if artifact_id is None:
        return {}
    return {None: _uploaded(use_artifact(owner=owner, artifact_id=artifact_id), "stdin_artifact")}


@dataclass(frozen=True, slots=True)
class Stored:
    """What programs and their inputs are made of: texts by themselves, and what was uploaded by its id."""

    texts: Mapping[str, Artifact]
    uploads: Mapping[UUID, Artifact]


def find_stored(owner: User, specs: Sequence[JobSpec]) -> Stored:
    """For any number of jobs; to be called outside a transaction, as it may wait for the object store."""
    texts = {text for spec in specs for text in (spec.script, spec.stdin) if text is not None}
    ids = {own for spec in specs for own in (spec.artifact, spec.stdin_artifact) if own is not None}
    ids |= {each.artifact for spec in specs for each in spec.inputs}
    return Stored(
        store_scripts(owner=owner, scripts=texts) if texts else {},
        use_artifacts(owner=owner, artifact_ids=ids) if ids else {},
    )


def pick_program(spec: JobSpec, stored: Stored) -> Artifact:
    if spec.script is not None:
        return stored.texts[spec.script]
    return _uploaded(stored.uploads.get(spec.artifact) if spec.artifact else None, "artifact")


def pick_inputs(spec: JobSpec, stored: Stored) -> Inputs:
    inputs = _pick_files(spec.inputs, stored.uploads)
    if spec.stdin is not None:
        inputs[None] = stored.texts[spec.stdin]
    elif spec.stdin_artifact is not None:
        inputs[None] = _uploaded(stored.uploads.get(spec.stdin_artifact), "stdin_artifact")
    return inputs


def check_room(spec: JobSpec, program: Artifact, inputs: Inputs, secret_sizes: Mapping[str, int]) -> None:
    """A program that does not fit into its own directory beside its files would fail on every worker.

    Its standard input is counted as if it lay there, too: a worker keeps both in memory.
    """
    files = [secret_sizes.get(each.name, 0) for each in spec.secrets if each.path is not None]
    sizes = [program.size, *(artifact.size for artifact in inputs.values()), *files]
    needed = sum(-(-size // PAGE_BYTES) * PAGE_BYTES for size in sizes)
    if needed > max(spec.requirements.disk_mb, 1) * MEGABYTE:
        raise InvalidInput(
            "requirements.disk_mb",
            "The program, its input files, its secrets' files and its standard input need"
            f" {-(-needed // MEGABYTE)} MB; ask for so many.",
        )


def find_queue(name: str) -> Queue:
    return pick_queue(name, find_queues([name]))


def find_queues(names: Collection[str]) -> dict[str, Queue]:
    return {queue.name: queue for queue in Queue.objects.filter(name__in=set(names))}


def pick_queue(name: str, found: Mapping[str, Queue]) -> Queue:
    if name not in found:
        raise InvalidInput("queue", "There is no such queue; GET /api/v1/queues lists them.")
    return found[name]


def find_artifact(owner: User, artifact_id: UUID | None) -> Artifact:
    return _uploaded(use_artifact(owner=owner, artifact_id=artifact_id), "artifact")


def _pick_files(inputs: Sequence[InputSpec], uploads: Mapping[UUID, Artifact]) -> dict[str | None, Artifact]:
    return {
        each.path: _uploaded(uploads.get(each.artifact), f"inputs.{index}.artifact")
        for index, each in enumerate(inputs)
    }


def _uploaded(artifact: Artifact | None, field: str) -> Artifact:
    if artifact is None:
        raise InvalidInput(field, "There is no such artifact of yours; announce it with POST /api/v1/artifacts.")
    if artifact.verified_at is None:
        raise InvalidInput(field, "The artifact is not uploaded yet; upload it, then POST to its complete address.")
    return artifact
