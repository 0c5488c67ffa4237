"""Programs on their way into the object store.

An owner's artifact is verified only when that owner has sent the bytes: that others stored them is no proof.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models.functions import Now

from jobs import conf, storage
from jobs.errors import InvalidInput
from jobs.models import Artifact


@dataclass(frozen=True, slots=True)
class Upload:
    """The one request that stores an artifact's bytes."""

    url: str
    headers: dict[str, str]
    method: str = "PUT"


@dataclass(frozen=True, slots=True)
class Announced:
    artifact: Artifact
    upload: Upload | None  # None: the bytes are stored already


def store_script(*, owner: User, script: str) -> Artifact:
    """Stores a small program and its row; to be called outside a transaction, for it waits for the object store."""
    data = script.encode()
    sha256 = hashlib.sha256(data).hexdigest()
    known = Artifact.objects.filter(owner=owner, sha256=sha256, verified_at__isnull=False).first()
    if known is not None:
        return known
    storage.put_artifact(sha256, data)
    artifact, _ = Artifact.objects.update_or_create(
        owner=owner, sha256=sha256, defaults={"size": len(data), "verified_at": Now()}
    )
    return artifact


def announce_artifact(*, owner: User, sha256: str, size: int) -> Announced:
    if size > conf.MAX_ARTIFACT_BYTES:
        raise InvalidInput("size", f"An artifact may have at most {conf.MAX_ARTIFACT_BYTES} bytes.")
    artifact, _ = Artifact.objects.get_or_create(owner=owner, sha256=sha256, defaults={"size": size})
    if artifact.verified_at is not None:
        if artifact.size != size:
            raise InvalidInput(
                "size", f"The artifact with this SHA-256 has {artifact.size} bytes; check size and hash."
            )
        return Announced(artifact, None)
    if artifact.size != size:
        # Nothing was stored under the first announcement, so the second one simply corrects it.
        Artifact.objects.filter(id=artifact.id, verified_at__isnull=True).update(size=size)
        artifact.size = size
    url, headers = storage.presign_artifact_upload(artifact.id, sha256, size)
    return Announced(artifact, Upload(url, headers))


def complete_artifact(artifact: Artifact) -> Artifact:
    """Verifies an upload; doing it again changes nothing."""
    if artifact.verified_at is None:
        storage.adopt_upload(artifact.id, artifact.sha256, artifact.size)
        Artifact.objects.filter(id=artifact.id, verified_at__isnull=True).update(verified_at=Now())
        artifact.refresh_from_db()
    return artifact
