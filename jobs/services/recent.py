"""What one thread of this process has just found, for the others who want the same: they wait for it and look not.

Invariant: nothing is older than it may be, counted from before it was looked for; and nobody waits longer for another
than that either, so that a stuck database holds up each of them once, not all of them in a row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

MOST = 4096


class Recent(Generic[Key, Value]):
    def __init__(self) -> None:
        self._found: dict[Key, tuple[float, Value]] = {}
        self._looking = [threading.Lock() for _ in range(16)]

    def get(self, key: Key, find: Callable[[], Value], *, seconds: float) -> Value:
        if (known := self._fresh(key, seconds)) is not None:
            return known
        turn = self._looking[hash(key) % len(self._looking)]
        ours = turn.acquire(timeout=seconds)
        try:
            known = self._fresh(key, seconds)
            return self._look(key, find) if known is None else known
        finally:
            if ours:
                turn.release()

    def forget(self) -> None:
        self._found.clear()

    def _look(self, key: Key, find: Callable[[], Value]) -> Value:
        began = time.monotonic()
        value = find()
        if len(self._found) >= MOST:
            self._found.clear()
        self._found[key] = (began, value)
        return value

    def _fresh(self, key: Key, seconds: float) -> Value | None:
        found = self._found.get(key)
        return found[1] if found is not None and time.monotonic() - found[0] < seconds else None
