"""Calls that come while a batch is under way share the next, and each gets its own answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.support.waiting import wait_for
from workers.control_plane.batcher import Batcher

DEADLINE_SECONDS = 30


class Gate:
    """Records batches, and holds each until it is opened."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.opened = threading.Event()
        self.fails = False

    def send(self, calls: Sequence[int]) -> list[int | None]:
        self.batches.append(list(calls))
        fails = self.fails
        assert self.opened.wait(DEADLINE_SECONDS)
        if fails:
            raise ConnectionError("away")
        return [call * 10 if call >= 0 else None for call in calls]


@contextmanager
def callers(batcher: Batcher[int, int], number: int) -> Iterator[Callable[[int], Future[int | None]]]:
    """Start a call on a thread and return once it waits in the batcher."""
    with ThreadPoolExecutor(number) as pool:
        yield lambda call: pool.submit(batcher.call, call)


def wait_until_waiting(batcher: Batcher[int, int], calls: set[int]) -> None:
    wait_for(lambda: {each.call for each in batcher._waiting} == calls, f"{calls} wait")


def test_calls_that_come_meanwhile_share_the_next_batch() -> None:
    gate = Gate()
    batcher = Batcher(gate.send, most=64, pause_seconds=0)
    with callers(batcher, 4) as call:
        first = call(1)
        wait_for(lambda: gate.batches, "the first batch is under way")
        others = [call(number) for number in (2, 3, -4)]
        wait_until_waiting(batcher, {2, 3, -4})
        gate.opened.set()
        assert [future.result(DEADLINE_SECONDS) for future in (first, *others)] == [10, 20, 30, None]
    assert [sorted(batch) for batch in gate.batches] == [[1], [-4, 2, 3]]


def test_batch_has_a_limit_and_nobody_is_left_waiting() -> None:
    gate = Gate()
    batcher = Batcher(gate.send, most=2, pause_seconds=0)
    with callers(batcher, 6) as call:
        futures = [call(0)]
        wait_for(lambda: gate.batches, "the first batch is under way")
        futures += [call(number) for number in range(1, 6)]
        wait_until_waiting(batcher, set(range(1, 6)))
        gate.opened.set()
        assert sorted(future.result(DEADLINE_SECONDS) or 0 for future in futures) == [0, 10, 20, 30, 40, 50]
    assert [len(batch) for batch in gate.batches] == [1, 2, 2, 1]


def test_failed_batch_fails_its_calls_and_no_later_ones() -> None:
    gate = Gate()
    batcher = Batcher(gate.send, most=64, pause_seconds=0)
    with callers(batcher, 3) as call:
        gate.fails = True
        failing = call(1)
        wait_for(lambda: gate.batches, "the first batch is under way")
        gate.fails = False
        others = [call(2), call(3)]
        wait_until_waiting(batcher, {2, 3})
        gate.opened.set()
        with pytest.raises(ConnectionError, match="away"):
            failing.result(DEADLINE_SECONDS)
        assert sorted(future.result(DEADLINE_SECONDS) or 0 for future in others) == [20, 30]
