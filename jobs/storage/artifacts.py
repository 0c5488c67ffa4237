"""Stores, verifies and retains artifacts.

An owner's artifact is verified only once that owner has sent the bytes: bytes that others stored prove nothing. Bytes
are stored only after a row with their hash is committed, and deleted only under the lock of the hash, so a new use of a
hash wins over its deletion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models.functions import Now

from jobs.db import sql
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.errors import Conflict, InvalidInput, NotFound
from jobs.models import Artifact
from jobs.storage import quota, s3

Result = TypeVar("Result")

# Artifacts wanted more recently need no new `wanted_at`: their grace period has only begun.
RECENTLY_WANTED = timedelta(seconds=limits.ORPHAN_GRACE_SECONDS / 24)
# Exceeds the timeout of the object store, so that the lock outlasts the requests that it guards.
STORAGE_LOCK_TIMEOUT_SECONDS = 45.0
MAX_PARALLEL_REQUESTS = 8
# Per transaction: Postgres has a few thousand locks in total.
MAX_LOCKED_HASHES = 48
# The columns of find_recent_artifacts.
_FIELDS = ("id", "owner_id", "sha256", "size", "created_at", "wanted_at", "doomed_at", "verified_at", "deleted_at")


@dataclass(frozen=True, slots=True)
class Upload:
    """The HTTP request that uploads an artifact's bytes."""

    url: str
    headers: dict[str, str]
    method: str = "PUT"


@dataclass(frozen=True, slots=True)
class _ArtifactId:
    id: UUID


@dataclass(frozen=True, slots=True)
class AnnouncedArtifact:
    artifact: Artifact
    upload: Upload | None  # None: the bytes are stored already


def store_scripts(*, owner: User, scripts: Collection[str]) -> dict[str, Artifact]:
    """Store several texts, uploading in parallel and equal ones once; keyed by text."""
    data = {script: script.encode() for script in scripts}
    hashes = {script: hashlib.sha256(each).hexdigest() for script, each in data.items()}
    recent = {"owner_id": owner.pk, "hashes": list(hashes.values()), "seconds": RECENTLY_WANTED.total_seconds()}
    stored = {artifact.sha256: artifact for artifact in sql.fetch("find_recent_artifacts", recent, _build_artifact)}
    missing = {sha256: data[script] for script, sha256 in hashes.items() if sha256 not in stored}
    if len(missing) > MAX_LOCKED_HASHES:
        _check_quota_for_all(owner, missing)
    for start in range(0, len(missing), MAX_LOCKED_HASHES):
        batch = islice(missing.items(), start, start + MAX_LOCKED_HASHES)
        rows = _ensure_rows(owner=owner, sizes={sha256: len(each) for sha256, each in batch}, sizes_known=True)
        unsent = [artifact for artifact in rows.values() if artifact.verified_at is None]
        _run_parallel(lambda artifact: s3.put_artifact(artifact.sha256, missing[artifact.sha256]), unsent)
        stored |= rows | _verify_stored(unsent)
    return {script: stored[sha256] for script, sha256 in hashes.items()}


def _build_artifact(*values: object) -> Artifact:
    artifact: Artifact = Artifact.from_db(connection.alias, _FIELDS, values)
    return artifact


def announce_artifact(*, owner: User, sha256: str, size: int) -> AnnouncedArtifact:
    """Create the row of an artifact and return the request that uploads its bytes."""
    if size > limits.MAX_ARTIFACT_BYTES:
        raise InvalidInput("size", f"An artifact may have at most {limits.MAX_ARTIFACT_BYTES} bytes.")
    artifact = _ensure_rows(owner=owner, sizes={sha256: size}, sizes_known=False)[sha256]
    if artifact.verified_at is not None:
        if artifact.size != size:
            raise InvalidInput(
                "size", f"The artifact with this SHA-256 has {artifact.size} bytes; check size and hash."
            )
        return AnnouncedArtifact(artifact, None)
    return AnnouncedArtifact(artifact, Upload(*s3.presign_upload(s3.upload_key(artifact.id), sha256, size)))


def complete_artifact(artifact: Artifact) -> Artifact:
    """Verify an upload. Idempotent."""
    retained = _retain(artifact.id)
    if retained is None:
        raise NotFound
    if retained.verified_at is not None:
        return retained
    s3.adopt_upload(retained.id, retained.sha256, retained.size)
    return _verify_stored([retained])[retained.sha256]


def retain_artifact(*, owner: User, artifact_id: UUID | None) -> Artifact | None:
    """Return the owner's artifact and restart its grace period, so that it outlives storing the job."""
    if artifact_id is None or not Artifact.objects.filter(owner=owner, id=artifact_id, deleted_at=None).exists():
        return None
    return _retain(artifact_id)


def retain_artifacts(*, owner: User, artifact_ids: Collection[UUID]) -> dict[UUID, Artifact]:
    """Like `retain_artifact`, for several: return those that belong to the owner, by id."""
    retained = {
        artifact.id: artifact
        for artifact in Artifact.objects.filter(
            owner=owner,
            id__in=artifact_ids,
            doomed_at__isnull=True,
            deleted_at__isnull=True,
            wanted_at__gt=Now() - RECENTLY_WANTED,
        )
    }
    for artifact_id in set(artifact_ids) - set(retained):
        artifact = retain_artifact(owner=owner, artifact_id=artifact_id)
        if artifact is not None:
            retained[artifact_id] = artifact
    return retained


def pin_artifacts(artifact_ids: Collection[UUID]) -> None:
    """Lock the artifacts of a version against deletion, in the transaction that stores the version."""
    wanted = set(artifact_ids)
    if len(sql.fetch("share_lock_artifacts", {"ids": list(wanted)}, _ArtifactId)) != len(wanted):
        raise Conflict("An artifact that the job names was deleted a moment ago; upload it, or submit the job, again.")


def lock_hashes(hashes: Collection[str]) -> None:
    """Lock out other uses and the deletion of these bytes until the transaction ends, in a fixed order."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(key) FROM (SELECT hashtextextended('punctual.artifact.' || sha256, 0) AS key"
            " FROM unnest(%s::text[]) AS sha256 ORDER BY key) AS keys",
            [list(hashes)],
        )


def _check_quota_for_all(owner: User, data: Mapping[str, bytes]) -> None:
    """Check the whole request before the first batch: a refused request must not use up part of the quota."""
    present = set(
        Artifact.objects.filter(owner=owner, sha256__in=data, deleted_at__isnull=True).values_list("sha256", flat=True)
    )
    added_bytes = sum(len(each) for sha256, each in data.items() if sha256 not in present)
    if added_bytes > 0:
        with transaction.atomic(), with_timeouts(statement_seconds=10):
            quota.check_quota(owner.pk, added_bytes)


def _ensure_rows(*, owner: User, sizes: Mapping[str, int], sizes_known: bool) -> dict[str, Artifact]:
    """Return the owner's rows by hash, creating missing ones; `sizes_known`: sizes are measured, not announced."""
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        lock_hashes(sizes)
        present = {artifact.sha256: artifact for artifact in Artifact.objects.filter(owner=owner, sha256__in=sizes)}
        added_bytes = sum(_added_bytes(present.get(sha256), size) for sha256, size in sizes.items())
        if added_bytes > 0:
            quota.check_quota(owner.pk, added_bytes)
        new = [Artifact(owner=owner, sha256=each, size=size) for each, size in sizes.items() if each not in present]
        Artifact.objects.bulk_create(new)
        for artifact in present.values():
            _unmark(artifact)
            if artifact.verified_at is None:
                _resize(artifact, sizes[artifact.sha256], size_known=sizes_known)
    return present | {artifact.sha256: artifact for artifact in new}


def _added_bytes(present: Artifact | None, size: int) -> int:
    if present is None or present.deleted_at is not None:
        return size
    return 0 if present.verified_at is not None else size - present.size


def _resize(artifact: Artifact, size: int, *, size_known: bool) -> None:
    if size < artifact.size and not size_known:
        # The larger size may have been uploaded already: shrinking would charge too little of the quota.
        raise InvalidInput(
            "size",
            f"You announced {artifact.size} bytes with this SHA-256 before (artifact {artifact.id});"
            " check size and hash, or delete that artifact first.",
        )
    if size != artifact.size:
        Artifact.objects.filter(id=artifact.id).update(size=size)
        artifact.size = size


def _retain(artifact_id: UUID) -> Artifact | None:
    artifact = Artifact.objects.filter(id=artifact_id, deleted_at__isnull=True).first()
    if artifact is None:
        return None
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        lock_hashes([artifact.sha256])
        # Read again: it may have been deleted while this waited for the lock.
        artifact = Artifact.objects.filter(id=artifact_id, deleted_at__isnull=True).first()
        if artifact is not None:
            _unmark(artifact)
    return artifact


def _unmark(artifact: Artifact) -> None:
    """Remove the deletion mark. The caller holds the lock of the hash."""
    if artifact.doomed_at is not None and artifact.verified_at is not None:
        # A deletion may have been interrupted after it had deleted the bytes.
        stored = s3.read_artifact_size(artifact.sha256) == artifact.size
        artifact.verified_at = artifact.verified_at if stored else None
    artifact.doomed_at = artifact.deleted_at = None
    Artifact.objects.filter(id=artifact.id).update(
        verified_at=artifact.verified_at, doomed_at=None, deleted_at=None, wanted_at=Now()
    )


def _verify_stored(uploaded: Sequence[Artifact]) -> dict[str, Artifact]:
    """Mark uploaded artifacts as verified. They were uploaded without a lock and may have been deleted meanwhile."""
    if not uploaded:
        return {}
    hashes = {artifact.id: artifact.sha256 for artifact in uploaded}
    with transaction.atomic(), with_timeouts(statement_seconds=STORAGE_LOCK_TIMEOUT_SECONDS):
        lock_hashes(hashes.values())
        rows = Artifact.objects.filter(id__in=hashes, deleted_at__isnull=True)
        present = list(rows)
        _delete_unreferenced(set(hashes.values()) - {artifact.sha256 for artifact in present})
        unverified = [artifact for artifact in present if artifact.verified_at is None]
        sizes = _run_parallel(lambda artifact: s3.read_artifact_size(artifact.sha256), unverified)
        complete = [artifact.id for artifact, size in zip(unverified, sizes, strict=True) if artifact.size == size]
        Artifact.objects.filter(id__in=complete).update(verified_at=Now())
        verified = {artifact.sha256: artifact for artifact in rows.filter(verified_at__isnull=False)}
    if len(verified) != len(hashes):
        raise Conflict("The artifact was deleted while it was being stored; store it again.")
    return verified


def _delete_unreferenced(hashes: Collection[str]) -> None:
    """Delete bytes whose rows are gone, under the locks of their hashes: no sweep would find bytes without a row."""
    if hashes:
        kept = Artifact.objects.filter(sha256__in=hashes, deleted_at__isnull=True).values_list("sha256", flat=True)
        s3.delete_objects([s3.artifact_key(sha256) for sha256 in set(hashes) - set(kept)])


def _run_parallel(request: Callable[[Artifact], Result], artifacts: Sequence[Artifact]) -> list[Result]:
    """Call `request` for each artifact in threads that only wait for the object store and use no database."""
    if len(artifacts) <= 1:
        return [request(artifact) for artifact in artifacts]
    pool = ThreadPoolExecutor(min(len(artifacts), MAX_PARALLEL_REQUESTS), thread_name_prefix="object-store")
    try:
        return [future.result() for future in [pool.submit(request, artifact) for artifact in artifacts]]
    finally:
        # After an error, do not begin the rest.
        pool.shutdown(cancel_futures=True)
