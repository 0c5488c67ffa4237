"""Names that the system takes long to look up."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from jobs.webhooks.addresses import Reach, Target, parse_networks
from jobs.webhooks.resolving import NotLookedUp, Resolver
from jobs.webhooks.sending import Request, send
from tests.waiting import wait_for


class System:
    """Names that begin with `slow` hang until they are let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.asked: list[str] = []

    def resolve(self, host: str, _port: int) -> list[str]:
        self.asked.append(host)
        if host.startswith("slow"):
            assert self.let_go.wait(30)
        if host.startswith("no"):
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return ["127.0.0.1"]


@pytest.fixture
def system() -> Iterator[System]:
    system = System()
    yield system
    system.let_go.set()


def lookups() -> int:
    return sum(thread.name == "lookup" for thread in threading.enumerate())


def test_a_name_is_waited_for_no_longer_than_there_is_time(system: System) -> None:
    resolver, began = Resolver(system.resolve, seconds=0.2), time.monotonic()
    with pytest.raises(NotLookedUp):
        resolver("slow", 80)
    assert time.monotonic() - began < 10
    assert resolver("quick", 80) == ["127.0.0.1"]
    with pytest.raises(socket.gaierror):
        resolver("no such name", 80)


def test_a_name_that_hangs_costs_one_thread_however_many_ask(system: System) -> None:
    resolver = Resolver(system.resolve, seconds=0.1)
    for _ in range(5):
        with pytest.raises(NotLookedUp):
            resolver("slow", 80)
    assert (system.asked, lookups()) == (["slow"], 1)
    system.let_go.set()
    wait_for(lambda: lookups() == 0, "the thread is gone")
    assert resolver("slow", 80) == ["127.0.0.1"]
    assert system.asked == ["slow", "slow"], "what was found is not kept"


def test_only_so_many_hang_at_once_and_who_finds_no_room_waits_for_it(system: System) -> None:
    resolver = Resolver(system.resolve, seconds=0.1, lookups=3)
    for host in ("slow 1", "slow 2", "slow 3", "slow 4", "quick"):
        with pytest.raises(NotLookedUp):
            resolver(host, 80)
    assert lookups() == 3
    system.let_go.set()
    assert Resolver(system.resolve)("quick", 80) == ["127.0.0.1"]
    wait_for(lambda: lookups() == 0, "the threads are gone")
    assert resolver("quick", 80) == ["127.0.0.1"]


def test_who_sends_is_told_that_the_name_took_too_long(system: System) -> None:
    request = Request(Target("http", "slow.example", 80, "/"), {}, b"")
    reach = Reach(parse_networks(["127.0.0.1/32"]), http=True)
    answer = send(request, reach=reach, resolve=Resolver(system.resolve, seconds=0.1))
    assert answer.error == "The host's name could not be looked up in time."
