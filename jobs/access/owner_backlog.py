"""The limit on an owner's unfinished executions that were started manually, over all jobs.

Counting reads every such row, so a process does not count at each submission: after a count it admits up to a tenth of
the capacity found, for some seconds. The nearer the limit, the more often it counts. Processes that admit concurrently
may exceed the limit a little.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from django.db import connection

from jobs.db import sql
from jobs.domain.errors import BacklogFull

ADMIT_TTL_SECONDS = 10.0
# Retries after a refusal do not make the database count more often.
REFUSE_TTL_SECONDS = 1.0
MAX_CACHED_OWNERS = 10_000


@dataclass(slots=True)
class BacklogCount:
    at: float
    limit: int
    capacity: int  # at the time of the count
    admissions_left: int  # until the next count


_counts: dict[int, BacklogCount] = {}


def check_owner_backlog(owner_id: int, adding: int, limit: int) -> None:
    """Raise BacklogFull if starting `adding` executions would exceed the limit (0: unlimited)."""
    if not limit or not adding:
        return
    count = _counts.get(owner_id)
    if count is None or count.limit != limit or not _is_still_valid(count, adding):
        count = _count_backlog(owner_id, limit)
    if adding > count.capacity:
        raise BacklogFull(
            f"{limit - count.capacity} of your manually started executions are unfinished, the limit over all jobs is"
            f" {limit}, and this would add {adding}; wait until some have ended, cancel some, or ask for more."
        )
    count.admissions_left -= adding


def _is_still_valid(count: BacklogCount, adding: int) -> bool:
    age = time.monotonic() - count.at
    if adding > count.capacity:
        return age < REFUSE_TTL_SECONDS
    return adding <= count.admissions_left and age < ADMIT_TTL_SECONDS


def _count_backlog(owner_id: int, limit: int) -> BacklogCount:
    now = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute(sql.statement("count_owner_backlog"), {"owner_id": owner_id, "limit": limit})
        there: int = cursor.fetchone()[0]
    if len(_counts) >= MAX_CACHED_OWNERS:
        _counts.clear()
    count = _counts[owner_id] = BacklogCount(now, limit, limit - there, (limit - there) // 10)
    return count
