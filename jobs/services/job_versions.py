"""What runs: the immutable versions of a job, made from what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from uuid import UUID

from django.contrib.auth.models import User

from jobs.errors import InvalidInput
from jobs.models import Artifact, Job, JobVersion, Queue
from jobs.retry_policy import parse_retry_policy
from jobs.services.artifacts import use_artifact
from jobs.services.job_spec import JobSpec

VersionFields = Mapping[str, object]


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
    }


def put_in_force(job: Job, wanted: VersionFields) -> None:
    """Gives the job this version, unless the one in force says the same; the caller holds the job's lock."""
    current = job.current_version
    if current is not None:
        said = {name: getattr(current, name) for name in wanted} | {"retry": asdict(parse_retry_policy(current.retry))}
        if said == wanted:
            return
    number = 1 if current is None else current.number + 1
    job.current_version = JobVersion.objects.create(job=job, number=number, **wanted)
    job.save(update_fields=["current_version", "updated_at"])


def find_queue(name: str) -> Queue:
    queue = Queue.objects.filter(name=name).first()
    if queue is None:
        raise InvalidInput("queue", "There is no such queue; GET /api/v1/queues lists them.")
    return queue


def find_artifact(owner: User, artifact_id: UUID | None) -> Artifact:
    artifact = use_artifact(owner=owner, artifact_id=artifact_id)
    if artifact is None:
        raise InvalidInput("artifact", "There is no such artifact of yours; announce it with POST /api/v1/artifacts.")
    if artifact.verified_at is None:
        raise InvalidInput(
            "artifact", "The artifact is not uploaded yet; upload it, then POST to its complete address."
        )
    return artifact
