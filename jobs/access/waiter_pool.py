"""Limits on how many requests of one kind a process serves at once, in total and per user."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from django.conf import settings

from jobs.domain import limits
from jobs.domain.errors import ExpensiveReadsBusy, TooManyExpensiveReads


class WaiterPool:
    """Slots limited in total and per holder; anonymous requests share one holder."""

    def __init__(self, total: int, per_holder: int) -> None:
        self._total = total
        self._per_holder = per_holder
        self._in_use: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    @property
    def in_use(self) -> int:
        with self._lock:
            return self._in_use.total()

    @property
    def free(self) -> int:
        return self._total - self.in_use

    def acquire(self, holder: Hashable) -> bool:
        with self._lock:
            if self._in_use.total() >= self._total or self._in_use[holder] >= self._per_holder:
                return False
            self._in_use[holder] += 1
            return True

    def release(self, holder: Hashable) -> None:
        with self._lock:
            self._in_use[holder] -= 1
            if not self._in_use[holder]:
                del self._in_use[holder]

    def poll_seconds(self, minimum: float) -> float:
        """Return a waiter's polling interval, which bounds the polls per second of all waiters together."""
        return max(minimum, self.in_use / limits.MAX_POLLS_PER_SECOND)


@contextmanager
def expensive_read(user_id: int) -> Iterator[None]:
    """Limit reads that take seconds of CPU to one per user and a few per process."""
    pool = _expensive_read_pool()
    if not pool.acquire(user_id):
        raise ExpensiveReadsBusy if pool.free == 0 else TooManyExpensiveReads
    try:
        yield
    finally:
        pool.release(user_id)


@lru_cache(maxsize=1)
def _expensive_read_pool() -> WaiterPool:
    return WaiterPool(settings.PUNCTUAL_EXPENSIVE_READS, per_holder=1)
