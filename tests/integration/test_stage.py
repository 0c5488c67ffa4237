"""A stage works when it is told to and by itself, outlives its errors, and stops when asked."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from jobs.stage import Stage

pytestmark = pytest.mark.django_db(transaction=True)

DEADLINE = 10.0


class Work:
    """Says each time what it is given to say, and lets a test see how often it was done."""

    def __init__(self, *answers: float | Exception) -> None:
        self._answers = list(answers)
        self.done = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self) -> float:
        answer = self._answers.pop(0) if self._answers else math.inf
        self.done.release()
        assert self.gate.wait(DEADLINE)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def was_done(self, times: int = 1) -> bool:
        return all(self.done.acquire(timeout=DEADLINE) for _ in range(times))


@pytest.fixture
def run() -> Iterator[Callable[[Work], Stage]]:
    stages: list[Stage] = []

    def start(work: Work) -> Stage:
        stages.append(Stage("test", work))
        stages[-1].start()
        return stages[-1]

    yield start
    for stage in stages:
        stage.stop()
        stage.join()


def test_it_goes_on_at_once_while_there_is_more(run: Callable[[Work], Stage]) -> None:
    work = Work(0, 0, math.inf)
    run(work)
    assert work.was_done(3)
    assert not work.done.acquire(blocking=False)


def test_it_looks_again_by_itself(run: Callable[[Work], Stage]) -> None:
    work = Work(0.01, 0.01)
    run(work)
    assert work.was_done(3)


def test_it_is_told_of_work(run: Callable[[Work], Stage]) -> None:
    work = Work()
    stage = run(work)
    assert work.was_done()
    stage.notify()
    assert work.was_done()


def test_what_it_is_told_while_it_works_is_not_forgotten(run: Callable[[Work], Stage]) -> None:
    work = Work()
    work.gate.clear()
    stage = run(work)
    assert work.was_done()
    stage.notify()
    work.gate.set()
    assert work.was_done()


def test_it_rests_whatever_it_is_told() -> None:
    began: list[float] = []
    twice = threading.Event()

    def work() -> float:
        began.append(time.monotonic())
        stage.rest(0.2)
        stage.notify()
        if len(began) == 2:
            twice.set()
        return math.inf

    stage = Stage("test", work)
    stage.start()
    assert twice.wait(DEADLINE)
    stage.stop()
    stage.join()
    assert began[1] - began[0] >= 0.2


def test_an_error_does_not_end_it(run: Callable[[Work], Stage], caplog: pytest.LogCaptureFixture) -> None:
    work = Work(ConnectionError("away"))
    run(work)
    assert work.was_done(2)
    assert "stage 'test' failed" in caplog.text


def test_it_stops_also_while_it_waits_for_ever(run: Callable[[Work], Stage]) -> None:
    work = Work()
    stage = run(work)
    assert work.was_done()
    stage.stop()
    stage.join()
    assert not stage._thread.is_alive()
