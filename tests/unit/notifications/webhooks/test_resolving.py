"""Names that the system resolves slowly."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from jobs.notifications.webhooks.address_policy import AddressPolicy, Target, parse_networks
from jobs.notifications.webhooks.resolving import LookupTimedOut, Resolver
from jobs.notifications.webhooks.sending import WebhookRequest, send_webhook
from tests.support.waiting import wait_for


class System:
    """A resolver whose lookups of names beginning with `slow` hang until released."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.lookups_made: list[str] = []

    def resolve(self, host: str, _port: int) -> list[str]:
        self.lookups_made.append(host)
        if host.startswith("slow"):
            assert self.release.wait(30)
        if host.startswith("no"):
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return ["127.0.0.1"]


@pytest.fixture
def system() -> Iterator[System]:
    system = System()
    yield system
    system.release.set()


def lookups() -> int:
    return sum(thread.name == "lookup" for thread in threading.enumerate())


def test_lookup_times_out(system: System) -> None:
    resolver, began = Resolver(system.resolve, seconds=0.2), time.monotonic()
    with pytest.raises(LookupTimedOut):
        resolver("slow", 80)
    assert time.monotonic() - began < 10
    assert resolver("quick", 80) == ["127.0.0.1"]
    with pytest.raises(socket.gaierror):
        resolver("no such name", 80)


def test_hanging_name_costs_one_thread(system: System) -> None:
    resolver = Resolver(system.resolve, seconds=0.1)
    for _ in range(5):
        with pytest.raises(LookupTimedOut):
            resolver("slow", 80)
    assert (system.lookups_made, lookups()) == (["slow"], 1)
    system.release.set()
    wait_for(lambda: lookups() == 0, "the thread has ended")
    assert resolver("slow", 80) == ["127.0.0.1"]
    assert system.lookups_made == ["slow", "slow"], "results are not cached"


def test_number_of_lookups_is_limited(system: System) -> None:
    resolver = Resolver(system.resolve, seconds=0.1, lookups=3)
    for host in ("slow 1", "slow 2", "slow 3", "slow 4", "quick"):
        with pytest.raises(LookupTimedOut):
            resolver(host, 80)
    assert lookups() == 3
    system.release.set()
    assert Resolver(system.resolve)("quick", 80) == ["127.0.0.1"]
    wait_for(lambda: lookups() == 0, "the threads have ended")
    assert resolver("quick", 80) == ["127.0.0.1"]


def test_sender_reports_a_lookup_timeout(system: System) -> None:
    request = WebhookRequest(Target("http", "slow.example", 80, "/"), {}, b"")
    policy = AddressPolicy(parse_networks(["127.0.0.1/32"]), http=True)
    response = send_webhook(request, policy=policy, resolve=Resolver(system.resolve, seconds=0.1))
    assert response.error == "The host's name could not be looked up in time."
