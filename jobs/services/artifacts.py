"""Programs on their way into the object store.

An owner's artifact is verified only when that owner has sent the bytes: that others stored them is no proof. Bytes are
stored only once a row that names them is committed and wanted, and `orphans` deletes bytes only under the same lock, so
that whoever uses a hash anew wins over its collection.
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

from jobs import conf, sql, storage
from jobs.errors import Conflict, InvalidInput, NotFound
from jobs.models import Artifact
from jobs.services import storage_quota
from jobs.services.database import bounded

Answer = TypeVar("Answer")

# One that was wanted this recently need not be written again: its grace is far from over.
WANTED_RECENTLY = timedelta(seconds=conf.ORPHAN_GRACE_SECONDS / 24)
# Longer than the object store is waited for, so that the lock outlasts what it guards.
HOLD_SECONDS = 45.0
# So many questions to the object store are on their way at the same time, for one request.
ASKED_AT_ONCE = 8
# Hashes, by one transaction: Postgres has room for some thousand locks in all.
LOCKED_AT_ONCE = 48


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
    data = {script: script.encode() for script in scripts}
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
    if len(missing) > LOCKED_AT_ONCE:
        _check_room_for_all(owner, missing)
    for start in range(0, len(missing), LOCKED_AT_ONCE):
        some = islice(missing.items(), start, start + LOCKED_AT_ONCE)
        wanted = _want(owner=owner, sizes={sha256: len(each) for sha256, each in some}, seen=True)
        unsent = [artifact for artifact in wanted.values() if artifact.verified_at is None]
        _at_once(lambda artifact: storage.put_artifact(artifact.sha256, missing[artifact.sha256]), unsent)
        known |= wanted | _verify(unsent)
    return {script: known[sha256] for script, sha256 in hashes.items()}


def announce_artifact(*, owner: User, sha256: str, size: int) -> Announced:
    if size > conf.MAX_ARTIFACT_BYTES:
        raise InvalidInput("size", f"An artifact may have at most {conf.MAX_ARTIFACT_BYTES} bytes.")
    artifact = _want(owner=owner, sizes={sha256: size}, seen=False)[sha256]
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
    return _verify([kept])[kept.sha256]


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
    _lock_hashes([sha256])


def _lock_hashes(hashes: Collection[str]) -> None:
    """In one order, whoever locks several."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(key) FROM (SELECT hashtextextended('punctual.artifact.' || sha256, 0) AS key"
            " FROM unnest(%s::text[]) AS sha256 ORDER BY key) AS keys",
            [list(hashes)],
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


def _want(*, owner: User, sizes: Mapping[str, int], seen: bool) -> dict[str, Artifact]:
    """The owner's rows for these bytes, made if need be; not `seen`: their size is what the owner says it is."""
    with transaction.atomic(), bounded(statement_seconds=10):
        _lock_hashes(sizes)
        # Nobody else makes, changes or deletes them while the locks of their hashes are ours.
        present = {artifact.sha256: artifact for artifact in Artifact.objects.filter(owner=owner, sha256__in=sizes)}
        grows_by = sum(_growth(present.get(sha256), size) for sha256, size in sizes.items())
        if grows_by > 0:
            storage_quota.check_room(owner.pk, grows_by)
        new = [Artifact(owner=owner, sha256=each, size=size) for each, size in sizes.items() if each not in present]
        Artifact.objects.bulk_create(new)
        for artifact in present.values():
            _rescue(artifact)
            if artifact.verified_at is None:
                _resize(artifact, sizes[artifact.sha256], seen=seen)
    return present | {artifact.sha256: artifact for artifact in new}


def _growth(present: Artifact | None, size: int) -> int:
    if present is None or present.deleted_at is not None:
        return size
    return 0 if present.verified_at is not None else size - present.size


def _resize(artifact: Artifact, size: int, *, seen: bool) -> None:
    if size < artifact.size and not seen:
        # As many may have been uploaded already, and would count for less than they are.
        raise InvalidInput(
            "size",
            f"You announced {artifact.size} bytes with this SHA-256 before (artifact {artifact.id});"
            " check size and hash, or delete that artifact first.",
        )
    if size != artifact.size:
        Artifact.objects.filter(id=artifact.id).update(size=size)
        artifact.size = size


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


def _verify(stored: Sequence[Artifact]) -> dict[str, Artifact]:
    """Once their bytes are stored; they were on their way without a lock, and may have been deleted meanwhile."""
    if not stored:
        return {}
    wanted = {artifact.id: artifact.sha256 for artifact in stored}
    with transaction.atomic(), bounded(statement_seconds=HOLD_SECONDS):
        _lock_hashes(wanted.values())
        rows = Artifact.objects.filter(id__in=wanted, deleted_at__isnull=True)
        kept = list(rows)
        _delete_unnamed(set(wanted.values()) - {artifact.sha256 for artifact in kept})
        unproven = [artifact for artifact in kept if artifact.verified_at is None]
        sizes = _at_once(lambda artifact: storage.artifact_size(artifact.sha256), unproven)
        proven = [artifact.id for artifact, size in zip(unproven, sizes, strict=True) if artifact.size == size]
        Artifact.objects.filter(id__in=proven).update(verified_at=Now())
        verified = {artifact.sha256: artifact for artifact in rows.filter(verified_at__isnull=False)}
    if len(verified) != len(wanted):
        raise Conflict("The artifact was deleted while it was being stored; store it again.")
    return verified


def _delete_unnamed(hashes: Collection[str]) -> None:
    """Bytes whose rows have gone, under the locks of their hashes: if nobody names them, no sweep would find them."""
    if hashes:
        named = Artifact.objects.filter(sha256__in=hashes, deleted_at__isnull=True).values_list("sha256", flat=True)
        storage.delete_objects([storage.artifact_key(sha256) for sha256 in set(hashes) - set(named)])


def _at_once(ask: Callable[[Artifact], Answer], artifacts: Sequence[Artifact]) -> list[Answer]:
    """What the object store answers for each; threads that wait for it alone need no connection to the database."""
    if len(artifacts) <= 1:
        return [ask(artifact) for artifact in artifacts]
    pool = ThreadPoolExecutor(min(len(artifacts), ASKED_AT_ONCE), thread_name_prefix="object-store")
    try:
        return [asked.result() for asked in [pool.submit(ask, artifact) for artifact in artifacts]]
    finally:
        # After an error the rest is not begun.
        pool.shutdown(cancel_futures=True)
