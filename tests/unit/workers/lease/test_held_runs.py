"""Held runs: a requested stop takes effect in any order of events."""

from __future__ import annotations

import threading
from uuid import UUID, uuid4

import pytest

from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, Registration
from workers.lease.held_runs import HeldRuns

REGISTRATION = Registration(uuid4(), 1)


def fence(number: int, attempt: int = 1) -> AttemptFence:
    return AttemptFence(UUID(int=number), attempt, REGISTRATION.worker_id, REGISTRATION.incarnation)


class Killed:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def held() -> HeldRuns:
    return HeldRuns(REGISTRATION)


def test_run_is_listed_while_held(held: HeldRuns) -> None:
    with held.holding(fence(1)), held.holding(fence(2, 3)):
        assert sorted(held.attempts()) == [(UUID(int=1), 1), (UUID(int=2), 3)]
    assert held.attempts() == []


def test_run_that_raised_is_not_listed(held: HeldRuns) -> None:
    with pytest.raises(RuntimeError), held.holding(fence(1)):
        raise RuntimeError
    assert held.attempts() == []


def test_stop_kills_only_that_run(held: HeldRuns) -> None:
    first, second = Killed(), Killed()
    with held.holding(fence(1)) as one, held.holding(fence(2)) as two:
        one.attach(first)
        two.attach(second)
        held.stop(UUID(int=1), 1, Reason.CANCELLED)
        assert (first.times, second.times) == (1, 0)
        assert (one.stop_reason, two.stop_reason) == (Reason.CANCELLED, None)


def test_early_stop_kills_the_run_once_attached(held: HeldRuns) -> None:
    killed = Killed()
    with held.holding(fence(1)) as run:
        held.stop(UUID(int=1), 1, Reason.RELEASED)
        run.attach(killed)
        assert killed.times == 1


def test_first_stop_reason_wins(held: HeldRuns) -> None:
    with held.holding(fence(1)) as run:
        held.stop(UUID(int=1), 1, Reason.CANCELLED)
        held.stop_all(Reason.RELEASED)
        assert run.stop_reason is Reason.CANCELLED


def test_other_attempt_of_the_same_execution_is_not_stopped(held: HeldRuns) -> None:
    with held.holding(fence(1, 2)) as run:
        held.stop(UUID(int=1), 1, Reason.RELEASED)
        held.stop(UUID(int=9), 1, Reason.RELEASED)
        assert run.stop_reason is None


def test_stop_all_stops_every_run(held: HeldRuns) -> None:
    killed = Killed()
    with held.holding(fence(1)) as one, held.holding(fence(2)) as two:
        one.attach(killed)
        two.attach(killed)
        held.stop_all(Reason.RELEASED)
    assert killed.times == 2


def test_duplicate_message_gets_a_stopped_run(held: HeldRuns) -> None:
    with held.holding(fence(1)) as first:
        with held.holding(fence(1)) as second:
            assert second.stop_reason is Reason.RELEASED
        assert first.stop_reason is None
        assert held.attempts() == [(UUID(int=1), 1)], "the first run continues"


def test_close_refuses_new_runs_and_keeps_running_ones(held: HeldRuns) -> None:
    with held.holding(fence(1)) as running:
        held.close()
        with held.holding(fence(2)) as late:
            assert late.stop_reason is Reason.RELEASED
        assert running.stop_reason is None
        assert held.attempts() == [(UUID(int=1), 1)]


def test_wait_until_empty_ends_with_last_run_or_timeout(held: HeldRuns) -> None:
    assert held.wait_until_empty(0)
    entered, leave = threading.Event(), threading.Event()

    def run() -> None:
        with held.holding(fence(1)):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(10)
    assert not held.wait_until_empty(0.01)
    leave.set()
    assert held.wait_until_empty(10)
    thread.join(10)
