"""Secrets: kept, given new values, deleted, sealed anew. A value goes in and comes out nowhere but in a run.

Nothing here stores, logs or repeats a value: what is written is sealed before it reaches the database.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from jobs import conf
from jobs.errors import Conflict, InvalidInput, SecretsNotKept, SecretUnreadable
from jobs.models import Job, JobState, Secret
from jobs.models.secret import SECRET_NAME
from jobs.sealing import Keyring
from jobs.services.audit_trail import record
from jobs.services.database import bounded

_JOBS_NAMED = 5


@dataclass(frozen=True, slots=True)
class Resealed:
    """What one page of `reseal_secrets` did."""

    resealed: int
    unreadable: list[str]
    last_id: UUID | None  # None: there was nothing more


def create_secret(*, owner: User, name: str, value: str) -> Secret:
    if not re.fullmatch(SECRET_NAME, name):
        raise InvalidInput(
            "name", "A secret is named by letters, digits and . _ -, beginning with a letter or digit, at most 63."
        )
    sealed = _sealed(owner.pk, name, value)
    try:
        with transaction.atomic(), bounded(statement_seconds=5):
            secret = Secret.objects.create(owner=owner, name=name, sealed=sealed)
            record("secret.created", secret, owner_id=owner.pk, after={"version": secret.version})
            return secret
    except IntegrityError:
        raise Conflict(f"There is a secret called {name} already; PUT a new value to its address.") from None


def rotate_secret(secret_id: UUID, *, value: str) -> None:
    """Runs that are claimed from now on get the new value."""
    with transaction.atomic(), bounded(statement_seconds=5):
        secret = Secret.objects.select_for_update(no_key=True).get(id=secret_id)
        secret.sealed = _sealed(secret.owner_id, secret.name, value)
        secret.version += 1
        secret.save(update_fields=["sealed", "version", "updated_at"])
        before, after = {"version": secret.version - 1}, {"version": secret.version}
        record("secret.rotated", secret, owner_id=secret.owner_id, before=before, after=after)


def delete_secret(secret_id: UUID) -> None:
    """Refused while jobs are given it. Whoever gives it to a job meanwhile waits for this lock, or has it."""
    with transaction.atomic(), bounded(statement_seconds=10):
        secret = Secret.objects.select_for_update().get(id=secret_id)
        users = Job.objects.filter(owner_id=secret.owner_id, current_version__secrets__name=secret.name)
        users = users.exclude(state=JobState.CANCELLED).order_by("id").distinct()
        names = list(users.values_list("name", flat=True)[: _JOBS_NAMED + 1])
        if names:
            shown = ", ".join(names[:_JOBS_NAMED]) + (" and others" if len(names) > _JOBS_NAMED else "")
            raise Conflict(f"The secret {secret.name} is given to {shown}; take it from them first.")
        record("secret.deleted", secret, owner_id=secret.owner_id, before={"version": secret.version})
        secret.delete()


def reseal_secrets(after: UUID | None = None, limit: int = conf.RESEAL_BATCH_SECRETS) -> Resealed:
    """Seals a page of what other keys have sealed with the first one; committed with its page, whatever comes then.

    The value stays, and so do its version and the time of its last change.
    """
    ring = keyring()
    if ring is None:
        raise SecretsNotKept
    unreadable: list[str] = []
    changed: list[Secret] = []
    with transaction.atomic(), bounded(statement_seconds=30):
        rows = Secret.objects.order_by("id") if after is None else Secret.objects.filter(id__gt=after).order_by("id")
        page = list(rows.select_for_update(no_key=True)[:limit])
        for secret in page:
            try:
                new = sealed_with_first(ring, secret.sealed, owner_id=secret.owner_id, name=secret.name)
            except SecretUnreadable as error:
                unreadable.append(f"{secret.id}: {error}")
                continue
            if new != bytes(secret.sealed):
                secret.sealed = new
                changed.append(secret)
        Secret.objects.bulk_update(changed, ["sealed"])
    return Resealed(len(changed), unreadable, page[-1].id if page else None)


def sealed_with_first(ring: Keyring, sealed: bytes | memoryview, *, owner_id: int, name: str) -> bytes:
    """As it is, if the first key sealed it; else sealed anew."""
    before = bytes(sealed)
    if ring.is_sealed_with_first(before):
        return before
    return ring.seal(ring.open(before, owner_id=owner_id, name=name), owner_id=owner_id, name=name)


def keyring() -> Keyring | None:
    """None: this process was given no keys."""
    text: str = settings.PUNCTUAL_SECRETS_KEYS
    return _parsed(text) if text else None


@lru_cache(maxsize=1)
def _parsed(text: str) -> Keyring:
    return Keyring.parse(text)


def _sealed(owner_id: int, name: str, value: str) -> bytes:
    size = len(value.encode())
    if "\0" in value or not conf.MIN_SECRET_BYTES <= size <= conf.MAX_SECRET_BYTES:
        # Shorter ones could not be told from ordinary words in a log.
        raise InvalidInput(
            "value",
            f"A secret is text of {conf.MIN_SECRET_BYTES} to {conf.MAX_SECRET_BYTES} bytes of UTF-8, without NUL.",
        )
    ring = keyring()
    if ring is None:
        raise SecretsNotKept
    return ring.seal(value, owner_id=owner_id, name=name)
