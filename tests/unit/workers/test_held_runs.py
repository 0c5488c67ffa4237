"""Which attempts a worker holds, and that whatever was asked to stop is stopped, in whichever order things happen."""

from __future__ import annotations

import threading
from uuid import UUID, uuid4

import pytest

from jobs.protocol import Hold, Registration
from jobs.states import Reason
from workers.held_runs import HeldRuns

REGISTRATION = Registration(uuid4(), 1)


def hold(number: int, attempt: int = 1) -> Hold:
    return Hold(UUID(int=number), attempt, REGISTRATION.worker_id, REGISTRATION.incarnation)


class Killed:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def held() -> HeldRuns:
    return HeldRuns(REGISTRATION)


def test_a_run_is_listed_while_it_lasts(held: HeldRuns) -> None:
    with held.holding(hold(1)), held.holding(hold(2, 3)):
        assert sorted(held.pairs()) == [(UUID(int=1), 1), (UUID(int=2), 3)]
    assert held.pairs() == []


def test_a_run_that_raised_is_not_listed_any_more(held: HeldRuns) -> None:
    with pytest.raises(RuntimeError), held.holding(hold(1)):
        raise RuntimeError
    assert held.pairs() == []


def test_a_stop_kills_that_run_only(held: HeldRuns) -> None:
    first, second = Killed(), Killed()
    with held.holding(hold(1)) as one, held.holding(hold(2)) as two:
        one.attach(first)
        two.attach(second)
        held.stop(UUID(int=1), 1, Reason.CANCELLED)
        assert (first.times, second.times) == (1, 0)
        assert (one.stop_reason, two.stop_reason) == (Reason.CANCELLED, None)


def test_a_stop_that_came_before_there_was_anything_to_kill_is_done_then(held: HeldRuns) -> None:
    killed = Killed()
    with held.holding(hold(1)) as run:
        held.stop(UUID(int=1), 1, Reason.RELEASED)
        run.attach(killed)
        assert killed.times == 1


def test_the_first_reason_stays(held: HeldRuns) -> None:
    with held.holding(hold(1)) as run:
        held.stop(UUID(int=1), 1, Reason.CANCELLED)
        held.stop_all(Reason.RELEASED)
        assert run.stop_reason is Reason.CANCELLED


def test_another_attempt_of_the_same_execution_is_not_stopped(held: HeldRuns) -> None:
    with held.holding(hold(1, 2)) as run:
        held.stop(UUID(int=1), 1, Reason.RELEASED)
        held.stop(UUID(int=9), 1, Reason.RELEASED)
        assert run.stop_reason is None


def test_all_are_stopped_at_once(held: HeldRuns) -> None:
    killed = Killed()
    with held.holding(hold(1)) as one, held.holding(hold(2)) as two:
        one.attach(killed)
        two.attach(killed)
        held.stop_all(Reason.RELEASED)
    assert killed.times == 2


def test_a_second_message_for_the_same_attempt_is_stopped_from_the_start(held: HeldRuns) -> None:
    with held.holding(hold(1)) as first:
        with held.holding(hold(1)) as second:
            assert second.stop_reason is Reason.RELEASED
        assert first.stop_reason is None
        assert held.pairs() == [(UUID(int=1), 1)], "the first goes on"


def test_after_closing_nothing_new_is_taken_and_what_runs_goes_on(held: HeldRuns) -> None:
    with held.holding(hold(1)) as running:
        held.close()
        with held.holding(hold(2)) as late:
            assert late.stop_reason is Reason.RELEASED
        assert running.stop_reason is None
        assert held.pairs() == [(UUID(int=1), 1)]


def test_waiting_ends_when_the_last_run_does_or_when_the_time_is_up(held: HeldRuns) -> None:
    assert held.wait_until_empty(0)
    entered, leave = threading.Event(), threading.Event()

    def run() -> None:
        with held.holding(hold(1)):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(10)
    assert not held.wait_until_empty(0.01)
    leave.set()
    assert held.wait_until_empty(10)
    thread.join(10)
