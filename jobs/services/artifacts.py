"""Programs on their way into the object store.

An owner's artifact is verified only when that owner has sent the bytes: that others stored them is no proof. Bytes are
stored only once a row that names them is committed and wanted, and `orphans` deletes bytes only under the same lock, so
that whoever uses a hash anew wins over its collection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models.functions import Now

from jobs import conf, sql, storage
from jobs.errors import Conflict, InvalidInput, NotFound
from jobs.models import Artifact
from jobs.services import storage_quota
from jobs.services.database import bounded

# One that was wanted this recently need not be written again: its grace is far from over.
WANTED_RECENTLY = timedelta(seconds=conf.ORPHAN_GRACE_SECONDS / 24)
# Longer than the object store is waited for, so that the lock outlasts what it guards.
HOLD_SECONDS = 45.0
# So many are on their way to the object store at the same time, for one request.
STORED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Upload:
    """The one request that stores an artifact's bytes."""

    url: str
    headers: dict[str, str]
    method: str = "PUT"


@dataclass(frozen=True, slots=True)
class _Held:
    id: UUID


@dataclass(frozen=True, slots=True)
class Announced:
    artifact: Artifact
    upload: Upload | None  # None: the bytes are stored already


def store_script(*, owner: User, script: str) -> Artifact:
    """Stores a small program, or what one reads, and its row; outside a transaction: it waits for the object store."""
    return store_scripts(owner=owner, scripts=[script])[script]


def store_scripts(*, owner: User, scripts: Collection[str]) -> dict[str, Artifact]:
    """Many at once, each by its text; the bytes of several travel at the same time, and equal ones once."""
    data = {script: script.encode() for script in set(scripts)}
    hashes = {script: hashlib.sha256(each).hexdigest() for script, each in data.items()}
    recent = Artifact.objects.filter(
        owner=owner,
        sha256__in=hashes.values(),
        verified_at__isnull=False,
        doomed_at__isnull=True,
        deleted_at__isnull=True,
        wanted_at__gt=Now() - WANTED_RECENTLY,
    )
    known = {artifact.sha256: artifact for artifact in recent}
    missing = {sha256: data[script] for script, sha256 in hashes.items() if sha256 not in known}
    if len(missing) > 1:
        _check_room_for_all(owner, missing)
    for sha256, each in missing.items():
        known[sha256] = _want(owner=owner, sha256=sha256, size=len(each), seen=True)
    unsent = {sha256: each for sha256, each in missing.items() if known[sha256].verified_at is None}
    if unsent:
        _put(unsent)
    for sha256 in unsent:
        known[sha256] = _verify(known[sha256])
    return {script: known[sha256] for script, sha256 in hashes.items()}


def announce_artifact(*, owner: User, sha256: str, size: int) -> Announced:
    if size > conf.MAX_ARTIFACT_BYTES:
        raise InvalidInput("size", f"An artifact may have at most {conf.MAX_ARTIFACT_BYTES} bytes.")
    artifact = _want(owner=owner, sha256=sha256, size=size, seen=False)
    if artifact.verified_at is not None:
        if artifact.size != size:
            raise InvalidInput(
                "size", f"The artifact with this SHA-256 has {artifact.size} bytes; check size and hash."
            )
        return Announced(artifact, None)
    url, headers = storage.presign_artifact_upload(artifact.id, sha256, size)
    return Announced(artifact, Upload(url, headers))


def complete_artifact(artifact: Artifact) -> Artifact:
    """Verifies an upload; doing it again changes nothing."""
    kept = _keep(artifact.id)
    if kept is None:
        raise NotFound
    if kept.verified_at is not None:
        return kept
    storage.adopt_upload(kept.id, kept.sha256, kept.size)
    return _verify(kept)


def use_artifact(*, owner: User, artifact_id: UUID | None) -> Artifact | None:
    """The owner's artifact, which is not collected from now until long after the job that wants it is stored."""
    if artifact_id is None or not Artifact.objects.filter(owner=owner, id=artifact_id, deleted_at=None).exists():
        return None
    return _keep(artifact_id)


def use_artifacts(*, owner: User, artifact_ids: Collection[UUID]) -> dict[UUID, Artifact]:
    """Those of them that are the owner's, each kept as one that is used alone."""
    kept = {
        artifact.id: artifact
        for artifact in Artifact.objects.filter(
            owner=owner,
            id__in=artifact_ids,
            doomed_at__isnull=True,
            deleted_at__isnull=True,
            wanted_at__gt=Now() - WANTED_RECENTLY,
        )
    }
    for artifact_id in set(artifact_ids) - set(kept):
        artifact = use_artifact(owner=owner, artifact_id=artifact_id)
        if artifact is not None:
            kept[artifact_id] = artifact
    return kept


def hold_artifacts(artifact_ids: Collection[UUID]) -> None:
    """To be called in the transaction that stores a version: what it names has its bytes, and keeps them."""
    wanted = set(artifact_ids)
    if len(sql.fetch("hold_artifacts", {"ids": list(wanted)}, _Held)) != len(wanted):
        raise Conflict("An artifact that the job names was deleted a moment ago; upload it, or submit the job, again.")


def lock_hash(sha256: str) -> None:
    """Until the transaction ends, nobody else begins to want these bytes or deletes them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('punctual.artifact.' || %s, 0))", [sha256])


def _want(*, owner: User, sha256: str, size: int, seen: bool) -> Artifact:
    """The owner's row for these bytes, made if need be; not `seen`: their size is what the owner says it is."""
    with transaction.atomic(), bounded(statement_seconds=10):
        lock_hash(sha256)
        # Nobody else makes, changes or deletes it while the lock of its hash is ours.
        artifact = Artifact.objects.filter(owner=owner, sha256=sha256).first()
        grows_by = (
            size if artifact is None or artifact.deleted_at else 0 if artifact.verified_at else size - artifact.size
        )
        if grows_by > 0:
            storage_quota.check_room(owner.pk, grows_by)
        if artifact is None:
            return Artifact.objects.create(owner=owner, sha256=sha256, size=size)
        _rescue(artifact)
        if artifact.verified_at is None and artifact.size != size:
            if size < artifact.size and not seen:
                # As many may have been uploaded already, and would count for less than they are.
                raise InvalidInput(
                    "size",
                    f"You announced {artifact.size} bytes with this SHA-256 before (artifact {artifact.id});"
                    " check size and hash, or delete that artifact first.",
                )
            Artifact.objects.filter(id=artifact.id).update(size=size)
            artifact.size = size
    return artifact


def _keep(artifact_id: UUID) -> Artifact | None:
    artifact = Artifact.objects.filter(id=artifact_id, deleted_at__isnull=True).first()
    if artifact is None:
        return None
    with transaction.atomic(), bounded(statement_seconds=10):
        lock_hash(artifact.sha256)
        # Read anew: it may have been collected while we waited.
        artifact = Artifact.objects.filter(id=artifact_id, deleted_at__isnull=True).first()
        if artifact is not None:
            _rescue(artifact)
    return artifact


def _rescue(artifact: Artifact) -> None:
    """Under the lock of its hash."""
    if artifact.doomed_at is not None and artifact.verified_at is not None:
        # Its collection may have been interrupted after the bytes had gone.
        stored = storage.artifact_size(artifact.sha256) == artifact.size
        artifact.verified_at = artifact.verified_at if stored else None
    artifact.doomed_at = artifact.deleted_at = None
    Artifact.objects.filter(id=artifact.id).update(
        verified_at=artifact.verified_at, doomed_at=None, deleted_at=None, wanted_at=Now()
    )


def _check_room_for_all(owner: User, data: Mapping[str, bytes]) -> None:
    """Before the first of them is wanted: what is refused as a whole must not use up a part of the quota."""
    there = set(
        Artifact.objects.filter(owner=owner, sha256__in=data, deleted_at__isnull=True).values_list("sha256", flat=True)
    )
    grows_by = sum(len(each) for sha256, each in data.items() if sha256 not in there)
    if grows_by > 0:
        with transaction.atomic(), bounded(statement_seconds=10):
            storage_quota.check_room(owner.pk, grows_by)


def _put(data: Mapping[str, bytes]) -> None:
    """Threads that wait for the object store alone: none of them needs a connection to the database."""
    if len(data) == 1:
        storage.put_artifact(*next(iter(data.items())))
        return
    pool = ThreadPoolExecutor(min(len(data), STORED_AT_ONCE), thread_name_prefix="store-scripts")
    try:
        for done in [pool.submit(storage.put_artifact, sha256, each) for sha256, each in data.items()]:
            done.result()
    finally:
        # After an error the rest is not begun.
        pool.shutdown(cancel_futures=True)


def _verify(artifact: Artifact) -> Artifact:
    """Once its bytes are stored; they were on their way without a lock, and may have been deleted meanwhile."""
    with transaction.atomic(), bounded(statement_seconds=HOLD_SECONDS):
        lock_hash(artifact.sha256)
        kept = Artifact.objects.filter(id=artifact.id, deleted_at__isnull=True).first()
        if kept is None:
            if not Artifact.objects.filter(sha256=artifact.sha256, deleted_at__isnull=True).exists():
                # Nobody names them: no sweep would ever find them.
                storage.delete_objects([storage.artifact_key(artifact.sha256)])
        elif kept.verified_at is None and storage.artifact_size(kept.sha256) == kept.size:
            Artifact.objects.filter(id=kept.id).update(verified_at=Now())
            kept.refresh_from_db()
    if kept is None or kept.verified_at is None:
        raise Conflict("The artifact was deleted while it was being stored; store it again.")
    return kept
