"""Grants of secrets to job versions, and decryption of their values when a worker claims a run.

A grant names a secret of the job's owner only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from django.db.models.functions import Length

from jobs.access.secrets import load_keyring
from jobs.domain import limits
from jobs.domain.encryption import KEYS_VARIABLE, SEAL_OVERHEAD_BYTES
from jobs.domain.errors import InvalidInput, NotPermitted, SecretUnreadable
from jobs.domain.job_spec import SecretSpec
from jobs.domain.worker_protocol import ClaimedRun, ClaimedSecret
from jobs.models import ALL_SECRETS, JobVersion, Secret, VersionSecret

_NO_SECRETS = "[]"
_TOO_LARGE = f"The job's secrets exceed {limits.MAX_SECRET_BYTES_PER_RUN} bytes in total; use fewer or shorter ones."


@dataclass(frozen=True, slots=True)
class _SealedSecret:
    """A secret as the claim statement returns it."""

    owner: int
    name: str
    env: str | None
    path: str | None
    sealed: str | None  # in base64; None: the secret was deleted


def check_may_grant(grantable: Collection[str], secrets: Sequence[SecretSpec]) -> None:
    """Raise NotPermitted unless the token may grant every secret: a program could print the secrets it gets."""
    if ALL_SECRETS in grantable:
        return
    for index, each in enumerate(secrets):
        if each.name not in grantable:
            raise NotPermitted(
                f"secrets.{index}.name",
                f"This token may not give jobs the secret {each.name} or edit jobs that use it; create one that may"
                f" with `punctual tokens create --secret {each.name}`.",
            )


def check_grants(owner_id: int, secrets: Sequence[SecretSpec], *, lock: bool) -> None:
    """Raise InvalidInput for an unknown secret; `lock` keeps the others until the transaction ends.

    Storing a version requires the lock, taken after the calendars' and before any other.
    """
    check_secret_sizes(secrets, read_secret_sizes(owner_id, secrets, lock=lock))


def read_secret_sizes(owner_id: int, secrets: Iterable[SecretSpec], *, lock: bool) -> dict[str, int]:
    """Return the bytes of each existing secret, by name."""
    names = {each.name for each in secrets}
    if not names:
        return {}
    rows = Secret.objects.filter(owner_id=owner_id, name__in=names).order_by("id")
    rows = rows.select_for_update(no_key=True) if lock else rows
    return dict(rows.values_list("name", Length("sealed") - SEAL_OVERHEAD_BYTES))


def check_secret_sizes(secrets: Sequence[SecretSpec], sizes: Mapping[str, int]) -> None:
    """Raise InvalidInput if a secret of one job is unknown or they exceed the size limit together."""
    for index, each in enumerate(secrets):
        if each.name not in sizes:
            raise InvalidInput(
                f"secrets.{index}.name", "There is no such secret of yours; GET /api/v1/secrets lists them."
            )
    if sum(sizes[each.name] for each in secrets) > limits.MAX_SECRET_BYTES_PER_RUN:
        raise InvalidInput("secrets", _TOO_LARGE)


def read_grants(version: JobVersion) -> set[SecretSpec]:
    return {SecretSpec(each.name, each.env, each.path) for each in version.secrets.all()}


def store_grants(version: JobVersion, secrets: Sequence[SecretSpec]) -> None:
    VersionSecret.objects.bulk_create(
        VersionSecret(version=version, name=each.name, env=each.env, path=each.path) for each in secrets
    )


def open_secrets(claimed: ClaimedRun) -> ClaimedRun:
    """Decrypt the run's secrets. If any fails, return the problems and no values.

    Never raises: the run is claimed already, and would hang until its lease expires.
    """
    if claimed.secrets == _NO_SECRETS:
        return claimed
    opened = [_open_secret(_SealedSecret(**each)) for each in json.loads(claimed.secrets)]
    if sum(len(each.value.encode()) for each in opened) > limits.MAX_SECRET_BYTES_PER_RUN:
        opened = [replace(each, problem=_TOO_LARGE) for each in opened]
    if any(each.problem for each in opened):
        opened = [replace(each, value="") for each in opened]
    return replace(claimed, secrets=json.dumps([asdict(each) for each in opened]))


def _open_secret(each: _SealedSecret) -> ClaimedSecret:
    secret = ClaimedSecret(each.name, env=each.env, path=each.path)
    if each.sealed is None:
        return replace(secret, problem=f"The secret {each.name} does not exist any more.")
    ring = load_keyring()
    if ring is None:
        return replace(
            secret, problem=f"The secret {each.name} cannot be opened: {KEYS_VARIABLE} is not set for this process."
        )
    try:
        return replace(secret, value=ring.open(base64.b64decode(each.sealed), owner_id=each.owner, name=each.name))
    except SecretUnreadable as error:
        return replace(secret, problem=str(error))
