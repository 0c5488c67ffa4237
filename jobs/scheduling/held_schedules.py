"""Schedules that firing skips for a while, because they are locked or fail.

Kept in memory by each beat, so that they neither fill its batches nor fail them. They are retried apart from the
others, with exponential backoff. Losing them costs a few milliseconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

LOCKED_INITIAL_BACKOFF_SECONDS, LOCKED_MAX_BACKOFF_SECONDS = 0.02, 1.0
FAILED_INITIAL_BACKOFF_SECONDS, FAILED_MAX_BACKOFF_SECONDS = 1.0, 60.0
# A schedule beyond this limit takes up space in every batch.
MAX_HELD_SCHEDULES = 10_000
# After bisecting timed out, the next batch is smaller by this factor.
SHRINK_FACTOR = 8


@dataclass(frozen=True, slots=True)
class _Backoff:
    seconds: float
    until: float  # monotonic clock


class HeldSchedules:
    """Thread-safe set of held schedules with their backoffs."""

    def __init__(self) -> None:
        self._held: dict[UUID, _Backoff] = {}
        self._lock = threading.Lock()
        self._batch_limit = MAX_HELD_SCHEDULES

    @property
    def is_full(self) -> bool:
        return len(self._held) >= MAX_HELD_SCHEDULES

    def ids(self) -> list[UUID]:
        with self._lock:
            return list(self._held)

    def hold(self, ids: Iterable[UUID], *, failed: bool = False) -> None:
        first, most = (
            (FAILED_INITIAL_BACKOFF_SECONDS, FAILED_MAX_BACKOFF_SECONDS)
            if failed
            else (LOCKED_INITIAL_BACKOFF_SECONDS, LOCKED_MAX_BACKOFF_SECONDS)
        )
        now = time.monotonic()
        with self._lock:
            for schedule_id in ids:
                before = self._held.get(schedule_id)
                if before is None and len(self._held) >= MAX_HELD_SCHEDULES:
                    return
                seconds = first if before is None else min(max(before.seconds * 2, first), most)
                self._held[schedule_id] = _Backoff(seconds, now + seconds)

    def release(self, ids: Collection[UUID]) -> None:
        with self._lock:
            for schedule_id in ids:
                self._held.pop(schedule_id, None)

    def due(self, limit: int) -> list[UUID]:
        """Return schedules whose backoff has ended, the longest ago first."""
        now = time.monotonic()
        with self._lock:
            ended = [(held.until, schedule_id) for schedule_id, held in self._held.items() if held.until <= now]
            self._batch_limit, limit = min(2 * self._batch_limit, MAX_HELD_SCHEDULES), min(self._batch_limit, limit)
        return [schedule_id for _, schedule_id in sorted(ended)[:limit]]

    def shrink_batches(self, batch_size: int) -> None:
        """Return smaller batches for a while: bisecting one of this size timed out."""
        with self._lock:
            self._batch_limit = max(batch_size // SHRINK_FACTOR, 1)

    def seconds_until_due(self) -> float | None:
        """Return None if nothing is held."""
        with self._lock:
            first = min((held.until for held in self._held.values()), default=None)
        return None if first is None else max(0.0, first - time.monotonic())
