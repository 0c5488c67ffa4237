"""A stage runs when notified and on its own, survives errors, and stops on request."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from jobs.beat.stage import Stage

pytestmark = pytest.mark.django_db(transaction=True)

DEADLINE = 10.0


class Work:
    """A step that returns the given answers and lets a test see how often it ran."""

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


def test_continues_at_once_while_there_is_more(run: Callable[[Work], Stage]) -> None:
    work = Work(0, 0, math.inf)
    run(work)
    assert work.was_done(3)
    assert not work.done.acquire(blocking=False)


def test_runs_again_without_notification(run: Callable[[Work], Stage]) -> None:
    work = Work(0.01, 0.01)
    run(work)
    assert work.was_done(3)


def test_notification_starts_a_step(run: Callable[[Work], Stage]) -> None:
    work = Work()
    stage = run(work)
    assert work.was_done()
    stage.notify()
    assert work.was_done()


def test_notification_during_a_step_is_not_lost(run: Callable[[Work], Stage]) -> None:
    work = Work()
    work.gate.clear()
    stage = run(work)
    assert work.was_done()
    stage.notify()
    work.gate.set()
    assert work.was_done()


def test_delay_next_holds_despite_notifications() -> None:
    began: list[float] = []
    twice = threading.Event()

    def work() -> float:
        began.append(time.monotonic())
        stage.delay_next(0.2)
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


def test_error_does_not_stop_the_stage(run: Callable[[Work], Stage], caplog: pytest.LogCaptureFixture) -> None:
    work = Work(ConnectionError("away"))
    run(work)
    assert work.was_done(2)
    assert "stage 'test' failed" in caplog.text


def test_stops_during_an_endless_wait(run: Callable[[Work], Stage]) -> None:
    work = Work()
    stage = run(work)
    assert work.was_done()
    stage.stop()
    stage.join()
    assert not stage._thread.is_alive()
