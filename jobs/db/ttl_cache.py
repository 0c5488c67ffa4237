"""Per-process TTL cache with single-flight loading.

Invariant: no value is older than its TTL, counted from before it was loaded. A thread waits at most one TTL for
another's load, so that a stuck database delays each thread once, not all of them in a row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

MAX_ENTRIES = 4096


class TTLCache(Generic[Key, Value]):
    def __init__(self) -> None:
        self._entries: dict[Key, tuple[float, Value]] = {}
        self._load_locks = [threading.Lock() for _ in range(16)]

    def get(self, key: Key, load: Callable[[], Value], *, seconds: float) -> Value:
        if (fresh := self._get_fresh(key, seconds)) is not None:
            return fresh
        lock = self._load_locks[hash(key) % len(self._load_locks)]
        acquired = lock.acquire(timeout=seconds)
        try:
            fresh = self._get_fresh(key, seconds)
            return self._load(key, load) if fresh is None else fresh
        finally:
            if acquired:
                lock.release()

    def clear(self) -> None:
        self._entries.clear()

    def _load(self, key: Key, load: Callable[[], Value]) -> Value:
        started_at = time.monotonic()
        value = load()
        if len(self._entries) >= MAX_ENTRIES:
            self._entries.clear()
        self._entries[key] = (started_at, value)
        return value

    def _get_fresh(self, key: Key, seconds: float) -> Value | None:
        entry = self._entries.get(key)
        return entry[1] if entry is not None and time.monotonic() - entry[0] < seconds else None
