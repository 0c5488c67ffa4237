"""Deletes artifacts that nothing can run any more.

An artifact is in use by the current version of a job that is not cancelled, and by any version that an unfinished
execution runs. Versions that are only history keep the row without its bytes. Deletion commits a mark on the row
(`doomed_at`), then deletes the bytes, then the row: no version can reference a marked artifact (see
`artifacts.pin_artifacts`), and using it again first checks that its bytes exist. Bytes are deleted under the lock of
their hash, and only if no other row has it.
"""

from __future__ import annotations

from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from jobs.audit.log import record_change
from jobs.db.transactions import with_timeouts
from jobs.domain.errors import Conflict, NotFound
from jobs.models import Artifact, Execution, JobState, JobVersion, VersionInput
from jobs.storage import s3
from jobs.storage.artifacts import STORAGE_LOCK_TIMEOUT_SECONDS, lock_hashes

MAX_JOBS_NAMED = 5


def delete_artifact(artifact_id: UUID) -> None:
    """Delete the artifact, and its bytes unless another row has the same hash.

    If the object store is unavailable, the artifact stays marked: retry, or let the orphan sweep finish.
    """
    sha256 = Artifact.objects.filter(id=artifact_id, deleted_at__isnull=True).values_list("sha256", flat=True).first()
    if sha256 is None:
        raise NotFound
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        lock_hashes([sha256])
        # Also waits for transactions that are storing versions or executions of it.
        artifact = Artifact.objects.select_for_update().filter(id=artifact_id, deleted_at__isnull=True).first()
        if artifact is None:
            raise NotFound
        _check_unused(artifact_id)
        Artifact.objects.filter(id=artifact_id).update(doomed_at=Now())
        if artifact.doomed_at is None:
            before = {"sha256": artifact.sha256, "size": artifact.size}
            record_change("artifact.deleted", artifact, owner_id=artifact.owner_id, before=before)
    if not collect_artifact(artifact_id) and Artifact.objects.filter(id=artifact_id, deleted_at__isnull=True).exists():
        raise Conflict("The artifact was used again while it was being deleted; retry if it is no longer needed.")


def collect_artifact(artifact_id: UUID) -> bool:
    """Delete the bytes and then the row of a marked artifact. False: it is in use again."""
    sha256 = Artifact.objects.filter(id=artifact_id).values_list("sha256", flat=True).first()
    if sha256 is None:
        return False
    with transaction.atomic(), with_timeouts(statement_seconds=STORAGE_LOCK_TIMEOUT_SECONDS):
        lock_hashes([sha256])
        artifact = Artifact.objects.select_for_update().filter(id=artifact_id, doomed_at__isnull=False).first()
        if artifact is None:
            return False
        if _versions_using(artifact_id).exists():
            Artifact.objects.filter(id=artifact_id).update(doomed_at=None)
            return False
        keys = [s3.upload_key(artifact_id)]
        if not _is_referenced_by_others(sha256, artifact_id):
            keys.append(s3.artifact_key(sha256))
        s3.delete_objects(keys)
        if artifact.versions.exists() or artifact.inputs.exists():
            Artifact.objects.filter(id=artifact_id).update(deleted_at=Now(), verified_at=None, doomed_at=None)
        else:
            artifact.delete()
    return True


def annotate_in_use(artifacts: QuerySet[Artifact]) -> QuerySet[Artifact]:
    """Annotate each artifact with `in_use`: whether something may still run it."""
    programs = _filter_runnable(JobVersion.objects.filter(artifact=OuterRef("pk")))
    inputs = VersionInput.objects.filter(
        artifact=OuterRef("pk"), version__in=_filter_runnable(JobVersion.objects.all())
    )
    return artifacts.annotate(in_use=Exists(programs) | Exists(inputs))


def _is_referenced_by_others(sha256: str, artifact_id: UUID) -> bool:
    return Artifact.objects.filter(sha256=sha256, deleted_at__isnull=True).exclude(id=artifact_id).exists()


def _check_unused(artifact_id: UUID) -> None:
    names = list(
        _versions_using(artifact_id)
        .order_by("job_id")
        .values_list("job__name", flat=True)
        .distinct()[: MAX_JOBS_NAMED + 1]
    )
    if names:
        more = " and others" if len(names) > MAX_JOBS_NAMED else ""
        raise Conflict(
            f"Jobs still use the artifact: {', '.join(names[:MAX_JOBS_NAMED])}{more}; edit or cancel them first."
        )


def _versions_using(artifact_id: UUID) -> QuerySet[JobVersion]:
    as_program = Q(artifact=artifact_id)
    as_input = Q(id__in=VersionInput.objects.filter(artifact=artifact_id).values("version"))
    return _filter_runnable(JobVersion.objects.filter(as_program | as_input))


def _filter_runnable(versions: QuerySet[JobVersion]) -> QuerySet[JobVersion]:
    unfinished = Execution.objects.filter(job=OuterRef("job"), version=OuterRef("pk"), ended_at__isnull=True)
    return versions.filter(Q(current_of__isnull=False) & ~Q(job__state=JobState.CANCELLED) | Q(Exists(unfinished)))
