"""Secrets: kept, given new values, deleted, sealed anew. A value goes in and comes out nowhere but in a run.

Nothing here stores, logs or repeats a value: what is written is sealed before it reaches the database.
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

from jobs import conf
from jobs.errors import Conflict, InvalidInput, SecretsNotKept, SecretUnreadable
from jobs.models import Job, JobState, Secret
from jobs.models.secret import SECRET_NAME
from jobs.sealing import Keyring
from jobs.services.audit_trail import record
from jobs.services.database import bounded
from jobs.services.owner_limits import check_room_for_another

_JOBS_NAMED = 5

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class Resealed:
    """What one page did."""

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
            check_room_for_another(owner, Secret, conf.MAX_SECRETS_PER_OWNER)
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
    """The value stays, and so do its version and the time of its last change."""
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
) -> Resealed:
    """Seals a page of what other keys have sealed with the first one; committed with its page, whatever comes then."""
    ring = keyring()
    if ring is None:
        raise SecretsNotKept
    unreadable: list[str] = []
    changed: list[Row] = []
    with transaction.atomic(), bounded(statement_seconds=30):
        rest = rows if after is None else rows.filter(pk__gt=after)
        page = list(rest.order_by("pk").select_for_update(no_key=True)[:limit])
        for row in page:
            before = {column: getattr(row, column) for column in columns}
            try:
                anew = {
                    column: value and _with_first(ring, value, *owner_and_name(row)) for column, value in before.items()
                }
            except SecretUnreadable as error:
                unreadable.append(f"{row.pk}: {error}")
                continue
            if anew != before:
                for column, value in anew.items():
                    setattr(row, column, value)
                changed.append(row)
        rows.model._default_manager.bulk_update(changed, columns)
    return Resealed(len(changed), unreadable, page[-1].pk if page else None)


def _with_first(ring: Keyring, sealed: bytes | memoryview, owner_id: int, name: str) -> bytes:
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
