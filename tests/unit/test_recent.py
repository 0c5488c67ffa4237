"""What one has just found serves the others; what failed, or is old, does not."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.services import recent
from jobs.services.recent import Recent


def test_many_at_once_look_once() -> None:
    known: Recent[str, int] = Recent()
    barrier, looks = threading.Barrier(20), list[int]()

    def find() -> int:
        looks.append(1)
        time.sleep(0.05)
        return 7

    def ask(_: int) -> int:
        barrier.wait(10)
        return known.get("a", find, seconds=10)

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(ask, range(20))) == [7] * 20
    assert len(looks) == 1


def test_what_is_old_or_forgotten_or_failed_is_looked_for_again() -> None:
    known: Recent[str, int] = Recent()
    with pytest.raises(ZeroDivisionError):
        known.get("a", lambda: 1 // 0, seconds=10)
    assert known.get("a", lambda: 1, seconds=10) == 1
    assert known.get("a", lambda: 2, seconds=10) == 1
    assert known.get("a", lambda: 2, seconds=0) == 2
    known.forget()
    assert known.get("a", lambda: 3, seconds=10) == 3


def test_what_took_long_to_find_is_as_old_as_the_question() -> None:
    known: Recent[str, int] = Recent()

    def find() -> int:
        time.sleep(0.05)
        return 1

    assert known.get("a", find, seconds=0.04) == 1
    assert known.get("a", lambda: 2, seconds=0.04) == 2


def test_one_who_is_stuck_holds_up_nobody_for_long() -> None:
    known: Recent[str, int] = Recent()
    stuck, begun = threading.Event(), threading.Event()

    def find() -> int:
        begun.set()
        stuck.wait(10)
        return 1

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(known.get, "a", find, seconds=10)
        assert begun.wait(10)
        assert known.get("a", lambda: 2, seconds=0.05) == 2
        stuck.set()
        assert first.result(10) == 1


def test_it_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST", 3)
    known: Recent[int, int] = Recent()
    for number in range(10):
        assert known.get(number, lambda own=number: own, seconds=10) == number  # type: ignore[misc]
    assert len(known._found) <= 3
