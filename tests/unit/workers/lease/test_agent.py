"""Agent: lease renewal, stop orders, drain, and stopping all runs when the lease cannot be renewed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest

from jobs.domain.errors import WorkerLeaseLost
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, StopOrder
from tests.support.control_plane import OFFER, MemoryControlPlane
from tests.support.waiting import wait_for
from workers.errors import ControlPlaneUnavailable
from workers.lease import agent as agent_module
from workers.lease.agent import LEASE_SAFETY_FRACTION, Agent
from workers.lease.guardian import Guardian
from workers.lease.held_runs import HeldRun

DEADLINE = 10.0
ID = UUID(int=1)


class Running:
    """A run on a separate thread that ends when it is killed."""

    def __init__(self, agent: Agent, execution_id: UUID = ID) -> None:
        self.run: HeldRun | None = None
        self.killed, self._entered = threading.Event(), threading.Event()
        registration = agent.held.registration
        fence = AttemptFence(execution_id, 1, registration.worker_id, registration.incarnation)

        def target() -> None:
            with agent.held.holding(fence) as self.run:
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
    guardian = guardian or Guardian(lease * LEASE_SAFETY_FRACTION)
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


def test_agent_registers_and_renews_with_held_attempts(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    assert plane.calls == ["register"]
    run = Running(agent)
    agent.renew()
    assert plane.renewals == [[(ID, 1)]]
    run.killed.set()


def test_agent_renews_periodically(plane: MemoryControlPlane) -> None:
    with started(make_agent(plane, renew=0.01)):
        assert plane.renewed.wait(DEADLINE)
        plane.renewed.clear()
        assert plane.renewed.wait(DEADLINE), "periodically"


@pytest.mark.parametrize(("cancelled", "reason"), [(True, Reason.CANCELLED), (False, Reason.RELEASED)])
def test_agent_applies_stop_orders(plane: MemoryControlPlane, cancelled: bool, reason: Reason) -> None:
    agent = make_agent(plane)
    ordered, other = Running(agent), Running(agent, UUID(int=2))
    plane.on_renew = lambda: [StopOrder(ID, 1, cancelled=cancelled), StopOrder(UUID(int=9), 1, cancelled=False)]
    agent.renew()
    assert ordered.killed.wait(DEADLINE)
    assert (ordered.reason, other.reason) == (reason, None)
    other.killed.set()


def lose() -> list[StopOrder]:
    raise WorkerLeaseLost


def test_lost_lease_stops_every_run_and_registers_again(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    run = Running(agent)
    plane.on_renew = lose
    agent.renew()
    assert run.killed.is_set()
    assert run.reason is Reason.RELEASED
    assert agent.held.registration.incarnation == 2


def test_run_started_after_lost_lease_is_not_stopped(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    plane.on_renew = lose
    agent.renew()
    run = Running(agent)
    plane.on_renew = list
    agent.renew()
    assert run.reason is None
    run.killed.set()


def fail() -> list[StopOrder]:
    raise ControlPlaneUnavailable("the database is away")


def test_failed_renewals_stop_runs_before_the_lease_ends(plane: MemoryControlPlane) -> None:
    plane.on_renew = fail
    with started(make_agent(plane, lease=0.3, renew=0.02)) as agent:
        run = Running(agent)
        assert run.killed.wait(DEADLINE)
        assert run.reason is Reason.RELEASED
        wait_for(lambda: len(plane.renewals) > 1, "it keeps retrying")
        assert plane.calls == ["register"], "it does not register again: the lease may not have ended"


def test_hanging_renewal_does_not_keep_runs_alive(plane: MemoryControlPlane) -> None:
    """A dropped connection can block for minutes."""
    release = threading.Event()

    def hang() -> list[StopOrder]:
        release.wait(DEADLINE)
        return []

    plane.on_renew = hang
    with started(make_agent(plane, lease=0.3, renew=0.01)) as agent:
        run = Running(agent)
        assert plane.renewed.wait(DEADLINE)
        stopped = run.killed.wait(DEADLINE / 2)
        release.set()
        assert stopped


def test_short_outage_stops_no_run(plane: MemoryControlPlane) -> None:
    plane.on_renew = fail
    with started(make_agent(plane, lease=60, renew=0.01)) as agent:
        run = Running(agent)
        assert plane.renewed.wait(DEADLINE)
        plane.on_renew = list
        plane.renewed.clear()
        assert plane.renewed.wait(DEADLINE)
        assert run.reason is None


def test_requested_renewal_happens_at_once_and_applies_orders(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    with started(agent):
        run = Running(agent)
        plane.on_renew = lambda: [StopOrder(ID, 1, cancelled=True)]
        agent.request_renewal()
        assert run.killed.wait(DEADLINE), "the next regular renewal is a minute away"
        assert run.reason is Reason.CANCELLED


def test_renewal_reports_usage(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    run = Running(agent)
    with agent.held.holding(AttemptFence(ID, 1, plane.worker_id, 1)):
        pass
    agent.renew()
    assert plane.usage is not None
    assert (plane.usage.runs, plane.usage.taken) == (1, 2), "a refused message counts as taken"
    assert plane.usage.load >= 0
    assert plane.usage.memory_available_mb > 0
    run.killed.set()


def test_concurrent_renewal_requests_are_debounced(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    with started(agent):
        for _ in range(1000):
            agent.request_renewal()
        assert plane.renewed.wait(DEADLINE)
        assert len(plane.renewals) <= 3


def test_drain_finishes_runs_refuses_new_ones_and_deregisters(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane, renew=0.01)
    agent.start()
    run = Running(agent)
    draining = threading.Thread(target=agent.drain, args=(DEADLINE,))
    draining.start()
    plane.renewed.clear()
    assert plane.renewed.wait(DEADLINE), "the lease is renewed during the drain"
    with agent.held.holding(AttemptFence(UUID(int=2), 1, plane.worker_id, 1)) as late:
        assert late.stop_reason is Reason.RELEASED
    assert run.reason is None
    run.killed.set()
    draining.join(DEADLINE)
    assert plane.calls == ["register", "drain 1", "leave 1"]


def test_unfinished_run_is_released_by_drain(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    agent.start()
    run = Running(agent)
    agent.drain(0.01)
    assert run.reason is Reason.RELEASED
    assert plane.calls[-1] == "leave 1"


def test_hanging_run_does_not_block_drain(plane: MemoryControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.lease.agent.RELEASE_TIMEOUT_SECONDS", 0.01)
    agent = make_agent(plane)
    with agent.held.holding(AttemptFence(ID, 1, plane.worker_id, 1)) as fetching:
        agent.drain(0.01)
        assert fetching.stop_reason is Reason.RELEASED
    assert plane.calls[-1] == "leave 1"


def test_drain_works_before_the_agent_is_started(plane: MemoryControlPlane) -> None:
    make_agent(plane).drain(0)
    assert plane.calls == ["register", "drain 1", "leave 1"]


def test_registration_during_drain_drains_too(plane: MemoryControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "REPORT_TIMEOUT_SECONDS", 0.01)
    agent = make_agent(plane)
    draining = threading.Thread(target=agent.drain, args=(DEADLINE,))
    plane.on_renew = lose
    with agent.held.holding(AttemptFence(ID, 1, agent.held.registration.worker_id, 1)):
        draining.start()
        wait_for(lambda: "drain 1" in plane.calls, "the drain begins")
        agent.renew()
        assert plane.calls[-2:] == ["register", "drain 2"]
    draining.join(DEADLINE)


def test_renewal_after_deregistration_does_not_register_again(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    agent.drain(0)
    plane.on_renew = lose
    agent.renew()
    assert plane.calls == ["register", "drain 1", "leave 1"]


def test_outage_does_not_block_drain(plane: MemoryControlPlane) -> None:
    class Away(MemoryControlPlane):
        def drain(self, registration: object) -> None:
            raise ControlPlaneUnavailable("away")

        leave = drain

    agent = make_agent(Away())
    agent.drain(0)
    assert agent.held.wait_until_empty(0)


def test_worker_exits_if_its_name_is_taken(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)

    def lost() -> list[StopOrder]:
        raise WorkerLeaseLost

    plane.on_renew = lost
    plane.name_is_taken = True
    agent.renew()
    assert plane.evicted.is_set()
    assert agent.held.registration.incarnation == 1, "it holds no new attempts"


def test_dead_guardian_is_replaced_by_agent(plane: MemoryControlPlane) -> None:
    guardian = Guardian(60)
    previous = guardian.pid
    with started(make_agent(plane, lease=6, guardian=guardian)):
        os.kill(previous, signal.SIGKILL)
        wait_for(lambda: guardian.pid != previous, "the agent starts a new guardian", seconds=DEADLINE)
    assert not plane.evicted.is_set()


def test_worker_without_guardian_stops_its_runs_and_exits(
    plane: MemoryControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    guardian = Guardian(60)
    with started(make_agent(plane, lease=6, guardian=guardian)) as agent:
        run = Running(agent)
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        os.kill(guardian.pid, signal.SIGKILL)
        assert plane.evicted.wait(DEADLINE)
        assert run.reason is Reason.RELEASED
        with agent.held.holding(AttemptFence(UUID(int=2), 1, plane.worker_id, 1)) as late:
            assert late.stop_reason is Reason.RELEASED, "it holds no new attempts"


def test_drain_stops_guardian_before_releasing_runs(plane: MemoryControlPlane) -> None:
    guardian = Guardian(60)
    gone: list[bool] = []
    plane.on_leave = lambda: gone.append(not os.path.exists(f"/proc/{guardian.pid}"))
    make_agent(plane, guardian=guardian).drain(0)
    assert gone == [True]


def test_failed_renewal_is_retried_soon(plane: MemoryControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.lease.agent.RENEW_RETRY_SECONDS", 0.01)
    plane.on_renew = fail
    with started(make_agent(plane, lease=600, renew=1)):
        wait_for(lambda: len(plane.renewals) > 20, "it retries before the next regular renewal", seconds=DEADLINE)


def test_runs_stopped_by_lost_lease_report_before_registration(plane: MemoryControlPlane) -> None:
    agent = make_agent(plane)
    Running(agent)
    left: list[int] = []
    plane.on_renew = lose
    plane.on_register = lambda: left.append(len(agent.held.attempts()))
    agent.renew()
    assert left == [0]
