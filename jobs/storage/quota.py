"""Storage quotas: usage of the object store and of logs that are not archived yet.

Usage is summed from the rows of stored objects, never kept in a counter. Adding to it takes the owner's lock before
reading the sum and holds it until the commit, so two transactions cannot both slip under the quota.

Logs are the exception: a sum at every flush would cost too much. `check_full_owners` records the owners without free
storage, some seconds late, and appending to a log reads only that record.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from django.db.models.functions import Now
from psycopg.errors import QueryCanceled

from jobs.access.quotas import read_limit
from jobs.db import sql
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.errors import QuotaExceeded
from jobs.models import FullOwner

MEGABYTE = 1024 * 1024
# Of the ten seconds between two checks: bounds their load on the database.
CHECK_TIMEOUT_SECONDS = 2.0
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StorageUsage:
    owner_id: int
    quota_bytes: int  # 0: unlimited
    artifacts_bytes: int
    outputs_bytes: int
    logs_bytes: int  # compressed size of archived logs, size in Postgres of others

    @property
    def used_bytes(self) -> int:
        return self.artifacts_bytes + self.outputs_bytes + self.logs_bytes

    @property
    def is_full(self) -> bool:
        return 0 < self.quota_bytes <= self.used_bytes

    def has_capacity_for(self, size: int) -> bool:
        return not self.quota_bytes or self.used_bytes + size <= self.quota_bytes


def read_usages(owner_ids: Iterable[int]) -> dict[int, StorageUsage]:
    parameters = {"owner_ids": list(owner_ids), "default_mb": settings.PUNCTUAL_OWNER_STORAGE_MB}
    return {usage.owner_id: usage for usage in sql.fetch("read_storage_use", parameters, StorageUsage)}


def read_usage(owner_id: int) -> StorageUsage:
    return read_usages([owner_id])[owner_id]


def lock_usage(owner_id: int) -> StorageUsage | None:
    """Lock the owner's storage until the transaction ends and return its usage; None: the owner has no limit.

    This lock is taken last, so its holder waits for no other lock.
    """
    with connection.cursor() as cursor:
        # Two statements: a statement that waits for the lock still reads with its snapshot from before the wait.
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('punctual.storage.' || %(owner)s, 0))"
            " WHERE COALESCE((SELECT storage_mb FROM jobs_ownerquota WHERE owner_id = %(owner)s), %(default_mb)s) <> 0",
            {"owner": owner_id, "default_mb": settings.PUNCTUAL_OWNER_STORAGE_MB},
        )
        limited = cursor.fetchone() is not None
    return read_usage(owner_id) if limited else None


def check_quota(owner_id: int, size: int) -> None:
    """Raise QuotaExceeded unless the owner may store `size` more bytes."""
    usage = lock_usage(owner_id)
    if usage is not None and not usage.has_capacity_for(size):
        raise QuotaExceeded(
            f"{_in_mb(usage.used_bytes)} of your {usage.quota_bytes // MEGABYTE} MB of storage are used, and this needs"
            f" {_in_mb(size)} more; delete artifacts or outputs that you no longer need, or ask for a larger quota."
        )


def check_full_owners() -> list[int]:
    """Record which owners have no storage left, so that their logs are cut; return their ids."""
    parameters = {
        "limit": limits.STORAGE_CHECK_OWNERS,
        "log_bytes": limits.STORAGE_CHECK_LOG_BYTES,
        "logs": limits.STORAGE_CHECK_LOGS,
        "active_owners": limits.STORAGE_CHECK_ACTIVE_OWNERS,
    }
    with transaction.atomic(), with_timeouts(statement_seconds=CHECK_TIMEOUT_SECONDS), connection.cursor() as cursor:
        cursor.execute(sql.statement("find_growing_owners"), parameters)
        growing = [owner_id for (owner_id,) in cursor.fetchall()]
    is_full = _find_full(growing)
    with transaction.atomic(), with_timeouts(statement_seconds=CHECK_TIMEOUT_SECONDS):
        # Logs may outlive their owner.
        owners = User.objects.filter(id__in=is_full).values_list("id", flat=True)
        full = sorted(owner_id for owner_id in owners if is_full[owner_id])
        FullOwner.objects.filter(owner_id__in=is_full).exclude(owner_id__in=full).delete()
        FullOwner.objects.bulk_create(
            [FullOwner(owner_id=owner_id, checked_at=Now()) for owner_id in full],
            update_conflicts=True,
            unique_fields=["owner_id"],
            update_fields=["checked_at"],
        )
    return full


def _find_full(owner_ids: Sequence[int]) -> dict[int, bool]:
    """Check all owners at once, or one by one if that takes too long."""
    try:
        return _read_full(owner_ids, CHECK_TIMEOUT_SECONDS)
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
    is_full: dict[int, bool] = {}
    deadline = time.monotonic() + 2 * CHECK_TIMEOUT_SECONDS
    # In random order, so that owners left out by the deadline are reached by a later check.
    for owner_id in random.sample(owner_ids, len(owner_ids)):
        if time.monotonic() > deadline:
            break
        try:
            is_full |= _read_full([owner_id], CHECK_TIMEOUT_SECONDS / 2)
        except OperationalError as error:
            if not isinstance(error.__cause__, QueryCanceled):
                raise
            # Too many logs to sum up, and growing: treat an owner with a quota as full.
            is_full[owner_id] = read_limit(owner_id, "storage_mb", settings.PUNCTUAL_OWNER_STORAGE_MB) > 0
            logger.warning("Summing up the storage of owner %s timed out; cutting their logs", owner_id)
    return is_full


def _read_full(owner_ids: Sequence[int], seconds: float) -> dict[int, bool]:
    with transaction.atomic(), with_timeouts(statement_seconds=seconds):
        return {owner_id: usage.is_full for owner_id, usage in read_usages(owner_ids).items()}


def find_fitting(usage: StorageUsage | None, sizes: Sequence[int]) -> list[bool]:
    """Return for each size whether it fits after those before it."""
    if usage is None:
        return [True] * len(sizes)
    fits, added = [], 0
    for size in sizes:
        fits.append(usage.has_capacity_for(added + size))
        added += size if fits[-1] else 0
    return fits


def _in_mb(size: int) -> str:
    return f"{size / MEGABYTE:.1f} MB"
