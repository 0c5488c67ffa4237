"""Which secrets a job's versions are given, and their values at the moment when a worker claims a run.

A grant names a secret of the job's owner, and never one of anybody else.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from django.db.models.functions import Length

from jobs import conf
from jobs.errors import InvalidInput, SecretUnreadable
from jobs.models import JobVersion, Secret, VersionSecret
from jobs.protocol import Claimed, ClaimedSecret
from jobs.sealing import OVERHEAD_BYTES, VARIABLE
from jobs.services.job_spec import SecretSpec
from jobs.services.secrets import keyring

_NONE = "[]"
_TOO_MUCH = f"The job's secrets have over {conf.MAX_SECRET_BYTES_A_RUN} bytes together; give fewer or shorter ones."


@dataclass(frozen=True, slots=True)
class _Sealed:
    """As the statement of a claim reads it."""

    owner: int
    name: str
    env: str | None
    path: str | None
    sealed: str | None  # in base64; None: there is no such secret any more


def check_grants(owner_id: int, wanted: Sequence[SecretSpec], *, lock: bool) -> None:
    """InvalidInput says which secret is not there. Locked, those that are stay until the transaction ends.

    Whoever stores a version that names them needs the lock, after that of calendars and before any other.
    """
    check_sizes(wanted, read_sizes(owner_id, wanted, lock=lock))


def read_sizes(owner_id: int, wanted: Iterable[SecretSpec], *, lock: bool) -> dict[str, int]:
    """In bytes, by name; of any number of jobs, and without those that are not there."""
    names = {each.name for each in wanted}
    if not names:
        return {}
    rows = Secret.objects.filter(owner_id=owner_id, name__in=names).order_by("id")
    rows = rows.select_for_update(no_key=True) if lock else rows
    return dict(rows.values_list("name", Length("sealed") - OVERHEAD_BYTES))


def check_sizes(wanted: Sequence[SecretSpec], sizes: Mapping[str, int]) -> None:
    """Of what one job is given."""
    for index, each in enumerate(wanted):
        if each.name not in sizes:
            raise InvalidInput(
                f"secrets.{index}.name", "There is no such secret of yours; GET /api/v1/secrets lists them."
            )
    if sum(sizes[each.name] for each in wanted) > conf.MAX_SECRET_BYTES_A_RUN:
        raise InvalidInput("secrets", _TOO_MUCH)


def grants_of(version: JobVersion) -> set[SecretSpec]:
    return {SecretSpec(each.name, each.env, each.path) for each in version.secrets.all()}


def store_grants(version: JobVersion, wanted: Sequence[SecretSpec]) -> None:
    VersionSecret.objects.bulk_create(
        VersionSecret(version=version, name=each.name, env=each.env, path=each.path) for each in wanted
    )


def open_secrets(claimed: Claimed) -> Claimed:
    """What the run is given; instead of a value that cannot be had, the problem, and then no value at all.

    It never fails: the run is claimed by now, and would hang until it is taken for lost.
    """
    if claimed.secrets == _NONE:
        return claimed
    given = [_open(_Sealed(**each)) for each in json.loads(claimed.secrets)]
    if sum(len(each.value.encode()) for each in given) > conf.MAX_SECRET_BYTES_A_RUN:
        given = [replace(each, problem=_TOO_MUCH) for each in given]
    if any(each.problem for each in given):
        given = [replace(each, value="") for each in given]
    return replace(claimed, secrets=json.dumps([asdict(each) for each in given]))


def _open(each: _Sealed) -> ClaimedSecret:
    secret = ClaimedSecret(each.name, env=each.env, path=each.path)
    if each.sealed is None:
        return replace(secret, problem=f"The secret {each.name} does not exist any more.")
    ring = keyring()
    if ring is None:
        return replace(
            secret, problem=f"The secret {each.name} cannot be opened: {VARIABLE} is not set for this process."
        )
    try:
        return replace(secret, value=ring.open(base64.b64decode(each.sealed), owner_id=each.owner, name=each.name))
    except SecretUnreadable as error:
        return replace(secret, problem=str(error))
