"""Deletes artifacts that nothing can run any more.

What may still run names it: the version in force of a job that is not cancelled, and any version that an unfinished
execution runs. Versions that are only history keep the row, without its bytes. The mark on the row is committed first,
then the bytes go, then the row: no version can name what is marked (see `artifacts.hold_artifacts`), and whoever wants
it meanwhile makes sure of the bytes. Bytes go under the lock of their hash, when no other row keeps them.
"""

from __future__ import annotations

from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from jobs import storage
from jobs.errors import Conflict, NotFound
from jobs.models import Artifact, Execution, JobState, JobVersion, VersionInput
from jobs.services.artifacts import HOLD_SECONDS, lock_hash
from jobs.services.audit_trail import record
from jobs.services.database import bounded
from jobs.services.locking import UNFINISHED

JOBS_NAMED = 5


def delete_artifact(artifact_id: UUID) -> None:
    """Its bytes are gone when this returns, unless somebody else keeps the same.

    If the object store does not answer, the artifact stays marked: it can be deleted again, and the sweep goes on.
    """
    sha256 = Artifact.objects.filter(id=artifact_id, deleted_at__isnull=True).values_list("sha256", flat=True).first()
    if sha256 is None:
        raise NotFound
    with transaction.atomic(), bounded(statement_seconds=10):
        lock_hash(sha256)
        # Against versions and executions that are just being stored, too.
        artifact = Artifact.objects.select_for_update().filter(id=artifact_id, deleted_at__isnull=True).first()
        if artifact is None:
            raise NotFound
        _refuse_if_used(artifact_id)
        Artifact.objects.filter(id=artifact_id).update(doomed_at=Now())
        if artifact.doomed_at is None:
            told = {"sha256": artifact.sha256, "size": artifact.size}
            record("artifact.deleted", artifact, owner_id=artifact.owner_id, before=told)
    if not collect_artifact(artifact_id) and Artifact.objects.filter(id=artifact_id, deleted_at__isnull=True).exists():
        raise Conflict("Somebody wanted the artifact anew while it was being deleted; delete it again if need be.")


def collect_artifact(artifact_id: UUID) -> bool:
    """Deletes the bytes and then the row of a marked artifact; False: somebody wants it after all."""
    sha256 = Artifact.objects.filter(id=artifact_id).values_list("sha256", flat=True).first()
    if sha256 is None:
        return False
    with transaction.atomic(), bounded(statement_seconds=HOLD_SECONDS):
        lock_hash(sha256)
        artifact = Artifact.objects.select_for_update().filter(id=artifact_id, doomed_at__isnull=False).first()
        if artifact is None:
            return False
        if _users(artifact_id).exists():
            Artifact.objects.filter(id=artifact_id).update(doomed_at=None)
            return False
        keys = [storage.upload_key(artifact_id)]
        if not _is_kept_by_others(sha256, artifact_id):
            keys.append(storage.artifact_key(sha256))
        storage.delete_objects(keys)
        if artifact.versions.exists() or artifact.inputs.exists():
            Artifact.objects.filter(id=artifact_id).update(deleted_at=Now(), verified_at=None, doomed_at=None)
        else:
            artifact.delete()
    return True


def with_use(artifacts: QuerySet[Artifact]) -> QuerySet[Artifact]:
    """Each says whether something may still run it, as `in_use`."""
    programs = _runnable(JobVersion.objects.filter(artifact=OuterRef("pk")))
    inputs = VersionInput.objects.filter(artifact=OuterRef("pk"), version__in=_runnable(JobVersion.objects.all()))
    return artifacts.annotate(in_use=Exists(programs) | Exists(inputs))


def _is_kept_by_others(sha256: str, artifact_id: UUID) -> bool:
    return Artifact.objects.filter(sha256=sha256, deleted_at__isnull=True).exclude(id=artifact_id).exists()


def _refuse_if_used(artifact_id: UUID) -> None:
    names = list(
        _users(artifact_id).order_by("job_id").values_list("job__name", flat=True).distinct()[: JOBS_NAMED + 1]
    )
    if names:
        more = " and others" if len(names) > JOBS_NAMED else ""
        raise Conflict(
            f"Jobs still use the artifact: {', '.join(names[:JOBS_NAMED])}{more}; edit or cancel them first."
        )


def _users(artifact_id: UUID) -> QuerySet[JobVersion]:
    program = Q(artifact=artifact_id)
    given = Q(id__in=VersionInput.objects.filter(artifact=artifact_id).values("version"))
    return _runnable(JobVersion.objects.filter(program | given))


def _runnable(versions: QuerySet[JobVersion]) -> QuerySet[JobVersion]:
    unfinished = Execution.objects.filter(job=OuterRef("job"), version=OuterRef("pk"), state__in=UNFINISHED)
    return versions.filter(Q(current_of__isnull=False) & ~Q(job__state=JobState.CANCELLED) | Q(Exists(unfinished)))
