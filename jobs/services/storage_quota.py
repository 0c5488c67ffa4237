"""How much of the object store an owner uses, and may use.

What is used is summed up from the rows that name what is stored, never counted up and down. Whoever adds to it holds
the owner's lock from before it is read until the addition is committed, so that two cannot both slip under the quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import connection

from jobs import sql
from jobs.errors import QuotaExceeded

MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StorageUse:
    owner_id: int
    quota_bytes: int  # 0: without limit
    artifacts_bytes: int
    outputs_bytes: int
    logs_bytes: int  # those that were archived; Postgres's own are not of the object store

    @property
    def used_bytes(self) -> int:
        return self.artifacts_bytes + self.outputs_bytes + self.logs_bytes

    def has_room_for(self, size: int) -> bool:
        return not self.quota_bytes or self.used_bytes + size <= self.quota_bytes


def read_uses(owner_ids: Iterable[int]) -> dict[int, StorageUse]:
    wanted = {"owner_ids": list(owner_ids), "default_mb": settings.PUNCTUAL_OWNER_STORAGE_MB}
    return {use.owner_id: use for use in sql.fetch("storage_use", wanted, StorageUse)}


def read_use(owner_id: int) -> StorageUse:
    return read_uses([owner_id])[owner_id]


def lock_use(owner_id: int) -> StorageUse | None:
    """What the owner uses now, and until the transaction ends but for what this transaction adds.

    None: the owner has no limit, and what is used need be neither locked nor summed up.
    Taken last of all locks: whoever holds it waits for nobody.
    """
    with connection.cursor() as cursor:
        # A statement of its own: one that waited would still read what was there before it waited.
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('punctual.storage.' || %(owner)s, 0))"
            " WHERE COALESCE((SELECT storage_mb FROM jobs_ownerquota WHERE owner_id = %(owner)s), %(default_mb)s) <> 0",
            {"owner": owner_id, "default_mb": settings.PUNCTUAL_OWNER_STORAGE_MB},
        )
        limited = cursor.fetchone() is not None
    return read_use(owner_id) if limited else None


def check_room(owner_id: int, size: int) -> None:
    use = lock_use(owner_id)
    if use is not None and not use.has_room_for(size):
        raise QuotaExceeded(
            f"{_megabytes(use.used_bytes)} of your {use.quota_bytes // MEGABYTE} MB of storage are used, and this needs"
            f" {_megabytes(size)} more; delete artifacts or outputs that you no longer need, or ask for a larger quota."
        )


def fitting(use: StorageUse | None, sizes: Sequence[int]) -> list[bool]:
    """Which of them there is room for, one after the other."""
    if use is None:
        return [True] * len(sizes)
    fits, added = [], 0
    for size in sizes:
        fits.append(use.has_room_for(added + size))
        added += size if fits[-1] else 0
    return fits


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:.1f} MB"
