"""The TTL cache: single-flight loading, expiry and bounds."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.db import ttl_cache
from jobs.db.ttl_cache import TTLCache


def test_concurrent_calls_load_once() -> None:
    cache: TTLCache[str, int] = TTLCache()
    barrier, loads = threading.Barrier(20), list[int]()

    def load() -> int:
        loads.append(1)
        time.sleep(0.05)
        return 7

    def get(_: int) -> int:
        barrier.wait(10)
        return cache.get("a", load, seconds=10)

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(get, range(20))) == [7] * 20
    assert len(loads) == 1


def test_expired_cleared_or_failed_value_is_loaded_again() -> None:
    cache: TTLCache[str, int] = TTLCache()
    with pytest.raises(ZeroDivisionError):
        cache.get("a", lambda: 1 // 0, seconds=10)
    assert cache.get("a", lambda: 1, seconds=10) == 1
    assert cache.get("a", lambda: 2, seconds=10) == 1
    assert cache.get("a", lambda: 2, seconds=0) == 2
    cache.clear()
    assert cache.get("a", lambda: 3, seconds=10) == 3


def test_age_counts_from_the_start_of_the_load() -> None:
    cache: TTLCache[str, int] = TTLCache()

    def load() -> int:
        time.sleep(0.05)
        return 1

    assert cache.get("a", load, seconds=0.04) == 1
    assert cache.get("a", lambda: 2, seconds=0.04) == 2


def test_stuck_load_delays_others_only_briefly() -> None:
    cache: TTLCache[str, int] = TTLCache()
    stuck, loading = threading.Event(), threading.Event()

    def load() -> int:
        loading.set()
        stuck.wait(10)
        return 1

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(cache.get, "a", load, seconds=10)
        assert loading.wait(10)
        assert cache.get("a", lambda: 2, seconds=0.05) == 2
        stuck.set()
        assert first.result(10) == 1


def test_cache_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ttl_cache, "MAX_ENTRIES", 3)
    cache: TTLCache[int, int] = TTLCache()
    for number in range(10):
        assert cache.get(number, lambda own=number: own, seconds=10) == number  # type: ignore[misc]
    assert len(cache._entries) <= 3
