"""Creates, rotates, deletes and re-encrypts secrets.

A value is sealed before it reaches the database and opened only for a run; nothing here stores, logs or returns it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Model, QuerySet

from jobs.access.quotas import check_object_quota
from jobs.audit.log import record_change
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.encryption import Keyring
from jobs.domain.errors import Conflict, InvalidInput, SecretsKeysNotConfigured, SecretUnreadable
from jobs.models import Job, JobState, Secret
from jobs.models.secret import SECRET_NAME

_MAX_JOBS_NAMED = 5

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class ResealResult:
    """The result of one page."""

    resealed: int
    unreadable: list[str]
    last_id: UUID | None  # None: the page was empty


def create_secret(*, owner: User, name: str, value: str) -> Secret:
    if not re.fullmatch(SECRET_NAME, name):
        raise InvalidInput(
            "name", "A secret is named by letters, digits and . _ -, beginning with a letter or digit, at most 63."
        )
    sealed = _seal_value(owner.pk, name, value)
    try:
        with transaction.atomic(), with_timeouts(statement_seconds=5):
            check_object_quota(owner, Secret, limits.MAX_SECRETS_PER_OWNER)
            secret = Secret.objects.create(owner=owner, name=name, sealed=sealed)
            record_change("secret.created", secret, owner_id=owner.pk, after={"version": secret.version})
            return secret
    except IntegrityError:
        raise Conflict(f"The secret {name} exists already; PUT a new value to its URL.") from None


def rotate_secret(secret_id: UUID, *, value: str) -> None:
    """Store a new value, which runs claimed from now on get."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        secret = Secret.objects.select_for_update(no_key=True).get(id=secret_id)
        secret.sealed = _seal_value(secret.owner_id, secret.name, value)
        secret.version += 1
        secret.save(update_fields=["sealed", "version", "updated_at"])
        before, after = {"version": secret.version - 1}, {"version": secret.version}
        record_change("secret.rotated", secret, owner_id=secret.owner_id, before=before, after=after)


def delete_secret(secret_id: UUID) -> None:
    """Delete a secret; refused while jobs use it. The lock excludes concurrent grants."""
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        secret = Secret.objects.select_for_update().get(id=secret_id)
        users = Job.objects.filter(owner_id=secret.owner_id, current_version__secrets__name=secret.name)
        users = users.exclude(state=JobState.CANCELLED).order_by("id").distinct()
        names = list(users.values_list("name", flat=True)[: _MAX_JOBS_NAMED + 1])
        if names:
            jobs = ", ".join(names[:_MAX_JOBS_NAMED]) + (" and others" if len(names) > _MAX_JOBS_NAMED else "")
            raise Conflict(f"The secret {secret.name} is used by {jobs}; remove it from them first.")
        record_change("secret.deleted", secret, owner_id=secret.owner_id, before={"version": secret.version})
        secret.delete()


def reseal_secrets(after: UUID | None = None, limit: int = limits.RESEAL_BATCH_SECRETS) -> ResealResult:
    """Re-encrypt a page of secrets with the first key, keeping values, versions and modification times."""
    return reseal_page(
        Secret.objects.all(), ["sealed"], owner_and_name=lambda it: (it.owner_id, it.name), after=after, limit=limit
    )


def reseal_page(
    rows: QuerySet[Row],
    columns: Sequence[str],
    *,
    owner_and_name: Callable[[Row], tuple[int, str]],
    after: UUID | None,
    limit: int,
) -> ResealResult:
    """Re-encrypt one page of rows with the first key, in a transaction of its own."""
    ring = load_keyring()
    if ring is None:
        raise SecretsKeysNotConfigured
    unreadable: list[str] = []
    changed: list[Row] = []
    with transaction.atomic(), with_timeouts(statement_seconds=30):
        rest = rows if after is None else rows.filter(pk__gt=after)
        page = list(rest.order_by("pk").select_for_update(no_key=True)[:limit])
        for row in page:
            before = {column: getattr(row, column) for column in columns}
            try:
                after_reseal = {
                    column: value and _reseal_value(ring, value, *owner_and_name(row))
                    for column, value in before.items()
                }
            except SecretUnreadable as error:
                unreadable.append(f"{row.pk}: {error}")
                continue
            if after_reseal != before:
                for column, value in after_reseal.items():
                    setattr(row, column, value)
                changed.append(row)
        rows.model._default_manager.bulk_update(changed, columns)
    return ResealResult(len(changed), unreadable, page[-1].pk if page else None)


def _reseal_value(ring: Keyring, sealed: bytes | memoryview, owner_id: int, name: str) -> bytes:
    """Re-encrypt the value unless the first key sealed it."""
    sealed = bytes(sealed)
    if ring.is_sealed_with_current_key(sealed):
        return sealed
    return ring.seal(ring.open(sealed, owner_id=owner_id, name=name), owner_id=owner_id, name=name)


def load_keyring() -> Keyring | None:
    """Return the configured keys, or None if this process has none."""
    text: str = settings.PUNCTUAL_SECRETS_KEYS
    return _parse_keyring(text) if text else None


@lru_cache(maxsize=1)
def _parse_keyring(text: str) -> Keyring:
    return Keyring.parse(text)


def _seal_value(owner_id: int, name: str, value: str) -> bytes:
    size = len(value.encode())
    if "\0" in value or not limits.MIN_SECRET_BYTES <= size <= limits.MAX_SECRET_BYTES:
        # Masking shorter values in logs would mask ordinary words.
        raise InvalidInput(
            "value",
            f"A secret is text of {limits.MIN_SECRET_BYTES} to {limits.MAX_SECRET_BYTES} bytes of UTF-8, without NUL.",
        )
    ring = load_keyring()
    if ring is None:
        raise SecretsKeysNotConfigured
    return ring.seal(value, owner_id=owner_id, name=name)
