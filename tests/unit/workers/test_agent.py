"""The agent keeps the lease, obeys orders, and stops every run in time when it cannot keep it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

from jobs.errors import WorkerLeaseLost
from jobs.protocol import Hold, Order
from jobs.states import Reason
from tests.unit.workers.control_plane import OFFER, MemoryControlPlane
from tests.waiting import wait_for
from workers import agent as agent_module
from workers.agent import SAFETY_SHARE, Agent
from workers.errors import ControlPlaneUnavailable
from workers.guardian import Guardian
from workers.held_runs import HeldRun

DEADLINE = 10.0
ID = UUID(int=1)


class Running:
    """A run on a thread of its own that ends when it is killed."""

    def __init__(self, agent: Agent, execution_id: UUID = ID) -> None:
        self.run: HeldRun | None = None
        self.killed, self._entered = threading.Event(), threading.Event()
        registration = agent.held.registration
        hold = Hold(execution_id, 1, registration.worker_id, registration.incarnation)

        def target() -> None:
            with agent.held.holding(hold) as self.run:
                self.run.attach(self.killed.set)
                self._entered.set()
                self.killed.wait(DEADLINE)

        self.thread = threading.Thread(target=target, daemon=True)
        self.thread.start()
        assert self._entered.wait(DEADLINE)

    @property
    def reason(self) -> Reason | None:
        assert self.run is not None
        return self.run.stop_reason


@pytest.fixture
def plane() -> MemoryControlPlane:
    return MemoryControlPlane()


def make_agent(
    plane: MemoryControlPlane, *, lease: float = 60, renew: float = 60, guardian: Guardian | None = None
) -> Agent:
    guardian = guardian or Guardian(lease * SAFETY_SHARE)
    return Agent(
        plane, OFFER, lease_seconds=lease, renew_seconds=renew, guardian=guardian, on_evicted=plane.evicted.set
    )


@contextmanager
def started(agent: Agent) -> Iterator[Agent]:
    agent.start()
    try:
        yield agent
    finally:
        agent.held.stop_all(Reason.RELEASED)
        agent.drain(0)


def test_it_registers_at_once_and_renews_with_what_it_holds(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    assert plane.asked == ["register"]
    run = Running(agent)
    agent.renew()
    assert plane.renewals == [[(ID, 1)]]
    run.killed.set()


def test_it_renews_by_itself(plane: MemoryControlPlane) -> None:
    with started(make_agent(plane, renew=0.01)):
        assert plane.renewed.wait(DEADLINE)
        plane.renewed.clear()
        assert plane.renewed.wait(DEADLINE), "again and again"


@pytest.mark.parametrize(("cancelled", "reason"), [(True, Reason.CANCELLED), (False, Reason.RELEASED)])
def test_it_obeys_orders(plane: MemoryControlPlane, cancelled: bool, reason: Reason) -> None:
    agent = make_agent(plane)
    ordered, other = Running(agent), Running(agent, UUID(int=2))
    plane.on_renew = lambda: [Order(ID, 1, cancelled=cancelled), Order(UUID(int=9), 1, cancelled=False)]
    agent.renew()
    assert ordered.killed.wait(DEADLINE)
    assert (ordered.reason, other.reason) == (reason, None)
    other.killed.set()


def lose() -> list[Order]:
    raise WorkerLeaseLost


def test_a_lost_lease_stops_every_run_and_begins_a_new_life(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    run = Running(agent)
    plane.on_renew = lose
    agent.renew()
    assert run.killed.is_set()
    assert run.reason is Reason.RELEASED
    assert agent.held.registration.incarnation == 2


def test_what_starts_after_a_lost_lease_is_left_alone(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    plane.on_renew = lose
    agent.renew()
    run = Running(agent)
    plane.on_renew = list
    agent.renew()
    assert run.reason is None
    run.killed.set()


def fail() -> list[Order]:
    raise ControlPlaneUnavailable("the database is away")


def test_renewals_that_fail_stop_the_runs_before_the_lease_ends(plane: MemoryControlPlane) -> None:
    plane.on_renew = fail
    with started(make_agent(plane, lease=0.3, renew=0.02)) as agent:
        run = Running(agent)
        assert run.killed.wait(DEADLINE)
        assert run.reason is Reason.RELEASED
        wait_for(lambda: len(plane.renewals) > 1, "it goes on trying")
        assert plane.asked == ["register"], "and its lease may not have ended: it is no new life yet"


def test_a_renewal_that_hangs_does_not_keep_the_runs_alive(plane: MemoryControlPlane) -> None:
    """A connection that is cut without a word blocks for minutes."""
    release = threading.Event()

    def hang() -> list[Order]:
        release.wait(DEADLINE)
        return []

    plane.on_renew = hang
    with started(make_agent(plane, lease=0.3, renew=0.01)) as agent:
        run = Running(agent)
        assert plane.renewed.wait(DEADLINE)
        stopped = run.killed.wait(DEADLINE / 2)
        release.set()
        assert stopped


def test_a_short_outage_harms_nothing(plane: MemoryControlPlane) -> None:
    plane.on_renew = fail
    with started(make_agent(plane, lease=60, renew=0.01)) as agent:
        run = Running(agent)
        assert plane.renewed.wait(DEADLINE)
        plane.on_renew = list
        plane.renewed.clear()
        assert plane.renewed.wait(DEADLINE)
        assert run.reason is None


def test_who_asks_for_a_renewal_gets_it_at_once_and_its_orders_are_obeyed(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    with started(agent):
        run = Running(agent)
        plane.on_renew = lambda: [Order(ID, 1, cancelled=True)]
        agent.renew_soon()
        assert run.killed.wait(DEADLINE), "the renewal in turn would come in a minute"
        assert run.reason is Reason.CANCELLED


def test_a_renewal_tells_what_is_used(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    run = Running(agent)
    with agent.held.holding(Hold(ID, 1, plane.worker_id, 1)):
        pass
    agent.renew()
    assert plane.usage is not None
    assert (plane.usage.runs, plane.usage.taken) == (1, 2), "a message that was refused was taken as well"
    assert plane.usage.load >= 0
    assert plane.usage.memory_available_mb > 0
    run.killed.set()


def test_many_who_ask_at_once_are_one_renewal(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    with started(agent):
        for _ in range(1000):
            agent.renew_soon()
        assert plane.renewed.wait(DEADLINE)
        assert len(plane.renewals) <= 3


def test_draining_lets_runs_finish_takes_nothing_new_and_says_goodbye(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane, renew=0.01)
    agent.start()
    run = Running(agent)
    draining = threading.Thread(target=agent.drain, args=(DEADLINE,))
    draining.start()
    plane.renewed.clear()
    assert plane.renewed.wait(DEADLINE), "the lease is kept while it drains"
    with agent.held.holding(Hold(UUID(int=2), 1, plane.worker_id, 1)) as late:
        assert late.stop_reason is Reason.RELEASED
    assert run.reason is None
    run.killed.set()
    draining.join(DEADLINE)
    assert plane.asked == ["register", "drain 1", "leave 1"]


def test_what_does_not_finish_in_time_is_released(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    agent.start()
    run = Running(agent)
    agent.drain(0.01)
    assert run.reason is Reason.RELEASED
    assert plane.asked[-1] == "leave 1"


def test_a_run_that_hangs_does_not_keep_a_worker_from_leaving(
    plane: MemoryControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.agent.RELEASE_SECONDS", 0.01)
    agent = make_agent(plane)
    with agent.held.holding(Hold(ID, 1, plane.worker_id, 1)) as fetching:
        agent.drain(0.01)
        assert fetching.stop_reason is Reason.RELEASED
    assert plane.asked[-1] == "leave 1"


def test_draining_works_before_the_agent_was_started(plane: MemoryControlPlane) -> None:
    make_agent(plane).drain(0)
    assert plane.asked == ["register", "drain 1", "leave 1"]


def test_a_new_life_begun_while_it_drains_drains_too(
    plane: MemoryControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "REPORT_SECONDS", 0.01)
    agent = make_agent(plane)
    draining = threading.Thread(target=agent.drain, args=(DEADLINE,))
    plane.on_renew = lose
    with agent.held.holding(Hold(ID, 1, agent.held.registration.worker_id, 1)):
        draining.start()
        wait_for(lambda: "drain 1" in plane.asked, "it drains")
        agent.renew()
        assert plane.asked[-2:] == ["register", "drain 2"]
    draining.join(DEADLINE)


def test_a_renewal_that_comes_back_after_the_goodbye_begins_no_new_life(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    agent.drain(0)
    plane.on_renew = lose
    agent.renew()
    assert plane.asked == ["register", "drain 1", "leave 1"]


def test_a_control_plane_that_is_away_does_not_stop_the_goodbye(plane: MemoryControlPlane) -> None:
    class Away(MemoryControlPlane):
        def drain(self, registration: object) -> None:
            raise ControlPlaneUnavailable("away")

        leave = drain

    agent = make_agent(Away())
    agent.drain(0)
    assert agent.held.wait_until_empty(0)


def test_a_worker_whose_name_was_taken_meanwhile_ends(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)

    def lost() -> list[Order]:
        raise WorkerLeaseLost

    plane.on_renew = lost
    plane.name_is_taken = True
    agent.renew()
    assert plane.evicted.is_set()
    assert agent.held.registration.incarnation == 1, "it holds on to nothing new"


def test_a_guardian_that_dies_is_replaced(plane: MemoryControlPlane) -> None:
    guardian = Guardian(60)
    former = guardian.pid
    with started(make_agent(plane, lease=6, guardian=guardian)):
        os.kill(former, signal.SIGKILL)
        wait_for(lambda: guardian.pid != former, "the agent starts another", seconds=DEADLINE)
    assert not plane.evicted.is_set()


def test_a_worker_that_gets_no_new_guardian_stops_its_runs_and_ends(
    plane: MemoryControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    guardian = Guardian(60)
    with started(make_agent(plane, lease=6, guardian=guardian)) as agent:
        run = Running(agent)
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        os.kill(guardian.pid, signal.SIGKILL)
        assert plane.evicted.wait(DEADLINE)
        assert run.reason is Reason.RELEASED
        with agent.held.holding(Hold(UUID(int=2), 1, plane.worker_id, 1)) as late:
            assert late.stop_reason is Reason.RELEASED, "and takes nothing new"


def test_it_ends_its_guardian_before_it_gives_its_work_away(plane: MemoryControlPlane) -> None:
    guardian = Guardian(60)
    gone: list[bool] = []
    plane.on_leave = lambda: gone.append(not os.path.exists(f"/proc/{guardian.pid}"))
    make_agent(plane, guardian=guardian).drain(0)
    assert gone == [True]


def test_a_renewal_that_failed_is_repeated_soon(plane: MemoryControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.agent.RENEW_AGAIN_SECONDS", 0.01)
    plane.on_renew = fail
    with started(make_agent(plane, lease=600, renew=1)):
        wait_for(lambda: len(plane.renewals) > 20, "it does not wait for the next to be due", seconds=DEADLINE)


def test_runs_that_a_lost_lease_stopped_say_so_before_a_new_life_loses_them(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    Running(agent)
    left: list[int] = []
    plane.on_renew = lose
    plane.on_register = lambda: left.append(len(agent.held.pairs()))
    agent.renew()
    assert left == [0]
