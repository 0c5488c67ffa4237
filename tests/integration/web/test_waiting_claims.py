"""Claims of REST workers that wait in one process: one read for all of them, and none of their own while idle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.db import connection

from jobs.access.tokens import generate_secret, store_token
from jobs.db import wakeups
from jobs.db.wakeups import wake_worker
from jobs.domain import limits
from jobs.domain.worker_protocol import Registration, WorkerOffer
from jobs.fleet import remote_claims
from jobs.fleet.leases import drain_worker, register_worker
from jobs.fleet.waiting_claims import waiting_claims
from jobs.models import ApiToken, Execution, TokenScope, Worker
from scheduler_project.web.bridge import Bridge
from tests.integration.web.exchange import Exchange, post, until
from tests.support.factories import claim_on, make_execution, make_user, place_on, run_on

pytestmark = pytest.mark.django_db(transaction=True)

LOOK_SECONDS = 0.05
NOTHING: dict[str, Any] = {"executions": [], "orders": []}


@pytest.fixture(autouse=True)
def _own_waiters(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(limits, "CLAIM_POLL_SECONDS", LOOK_SECONDS)
    patient = wakeups.BestEffortRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=5)
    monkeypatch.setattr(wakeups, "best_effort_redis", lambda: patient)
    for cache in (remote_claims.claim_waiter_pool, waiting_claims):
        cache.cache_clear()
    yield
    assert remote_claims.claim_waiter_pool().in_use == 0
    for cache in (remote_claims.claim_waiter_pool, waiting_claims):
        cache.cache_clear()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Return the workers for which a claim read the database by itself, in order."""
    read: list[UUID] = []
    claim_work = remote_claims.claim_work

    def claim_and_record(registration: Registration, *arguments: Any) -> remote_claims.Work:
        read.append(registration.worker_id)
        return claim_work(registration, *arguments)

    monkeypatch.setattr(remote_claims, "claim_work", claim_and_record)
    return read


class RemoteFleet:
    """Workers of one token."""

    def __init__(self, bridge: Bridge, count: int) -> None:
        secret = generate_secret()
        self._bridge = bridge
        self._bearer = {"Authorization": f"Bearer {secret}"}
        self.token = store_token(
            owner=make_user(is_staff=True), name="fleet", secret=secret, scope=TokenScope.WORKER, max_workers=count
        )
        offers = [WorkerOffer(f"w{n}", uuid4(), "default", "h", 8, 8.0, 8192, 8192, ["bash"], {}) for n in range(count)]
        self.workers = [register_worker(offer, token_id=self.token.id) for offer in offers]

    def claim(self, worker: Registration, *held: Execution, seconds: float) -> asyncio.Task[Exchange]:
        listed = [{"execution_id": str(each.id), "attempt": 1} for each in held]
        body = {"incarnation": worker.incarnation, "held": listed, "wait_seconds": seconds}
        exchange = post(f"workers/{worker.worker_id}/claim", self._bearer, body)

        async def run() -> Exchange:
            await exchange.run(self._bridge)
            return exchange

        return asyncio.create_task(run())

    async def become_idle(self, worker: Registration) -> None:
        """Let the worker wait until a read for all has found it idle."""
        exchange = await self.claim(worker, seconds=LOOK_SECONDS * 10)
        assert exchange.json == NOTHING
        assert waiting_claims().find_idle(worker.worker_id) is not None


async def on_a_thread(call: Any, *arguments: Any, **named: Any) -> Any:
    def run() -> Any:
        try:
            return call(*arguments, **named)
        finally:
            connection.close()

    return await asyncio.to_thread(run)


async def all_wait(count: int) -> None:
    await until(lambda: remote_claims.claim_waiter_pool().in_use == count, "all of them wait")


def test_lost_wakeup_is_found_by_one_read_for_all(bridge: Bridge, reads: list[UUID]) -> None:
    fleet, execution = RemoteFleet(bridge, 20), make_execution()
    chosen, *others = fleet.workers

    async def test() -> None:
        claims = [fleet.claim(worker, seconds=5) for worker in fleet.workers]
        await all_wait(len(claims))
        await until(lambda: all(reads.count(each.worker_id) >= 2 for each in fleet.workers), "all have read")
        await on_a_thread(place_on, chosen, execution)
        (claimed,) = (await claims[0]).json["executions"]
        assert claimed["execution_id"] == str(execution.id)
        assert [(await each).json for each in claims[1:]] == [NOTHING] * len(others)

    asyncio.run(test())
    # One before and one after the subscription to wake-ups, and one more if Redis confirmed it late.
    assert max(reads.count(each.worker_id) for each in others) <= 3


def test_change_ends_only_the_wait_that_it_concerns(bridge: Bridge) -> None:
    fleet, running = RemoteFleet(bridge, 4), make_execution()
    cancelled, drained, reregistered, calm = fleet.workers
    run_on(cancelled, running)

    async def test() -> None:
        claims = [fleet.claim(cancelled, running, seconds=15)]
        claims += [fleet.claim(worker, seconds=15) for worker in (drained, reregistered)]
        waiting = fleet.claim(calm, seconds=3)
        await all_wait(4)
        # Without wake-ups.
        await on_a_thread(Execution.objects.filter(id=running.id).update, cancel_requested_at=datetime.now(UTC))
        await on_a_thread(drain_worker, drained)
        await on_a_thread(Worker.objects.filter(id=reregistered.worker_id).update, incarnation=2)
        began = time.monotonic()
        ordered, empty, lost = [await claim for claim in claims]
        assert time.monotonic() - began < 10
        assert [each["cancelled"] for each in ordered.json["orders"]] == [True]
        assert empty.json == NOTHING
        assert lost.status == 409
        assert (await waiting).json == NOTHING

    asyncio.run(test())


def test_run_that_a_worker_lists_does_not_end_its_wait(bridge: Bridge, reads: list[UUID]) -> None:
    fleet, execution = RemoteFleet(bridge, 1), make_execution()
    (worker,) = fleet.workers

    async def test() -> None:
        await on_a_thread(place_on, worker, execution)
        claimed = await fleet.claim(worker, seconds=5)
        assert len(claimed.json["executions"]) == 1
        assert (await fleet.claim(worker, execution, seconds=LOOK_SECONDS * 10)).json == NOTHING
        # Its response was lost: the worker does not list it.
        again = await fleet.claim(worker, seconds=5)
        assert [each["execution_id"] for each in again.json["executions"]] == [str(execution.id)]

    asyncio.run(test())
    assert len(reads) <= 5


def test_idle_worker_waits_again_without_reading(bridge: Bridge, reads: list[UUID]) -> None:
    fleet = RemoteFleet(bridge, 1)
    (worker,) = fleet.workers

    async def test() -> None:
        await fleet.become_idle(worker)
        before = len(reads)
        for _ in range(3):
            assert (await fleet.claim(worker, seconds=LOOK_SECONDS * 4)).json == NOTHING
        assert len(reads) == before

    asyncio.run(test())


def test_wakeup_between_two_claims_ends_the_second_at_once(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, execution = RemoteFleet(bridge, 1), make_execution()
    (worker,) = fleet.workers

    async def test() -> None:
        await fleet.become_idle(worker)
        # Only the wake-up can end the wait in time.
        monkeypatch.setattr(limits, "CLAIM_POLL_SECONDS", 30.0)
        monkeypatch.setattr(limits, "IDLE_WORKER_SECONDS", 30.0)
        assert bridge._hub is not None
        lingering = bridge._hub._lingering
        await on_a_thread(place_on, worker, execution)
        await on_a_thread(wake_worker, worker.worker_id)
        await until(lambda: all(each.woken for each in lingering.values()), "the wake-up has arrived")
        assert lingering
        began = time.monotonic()
        (claimed,) = (await fleet.claim(worker, seconds=15)).json["executions"]
        assert (claimed["execution_id"], time.monotonic() - began < 10) == (str(execution.id), True)

    asyncio.run(test())


@pytest.mark.parametrize("placed", [False, True])
def test_idle_worker_with_a_revoked_token_gets_no_work(bridge: Bridge, placed: bool) -> None:
    fleet, execution = RemoteFleet(bridge, 1), make_execution()
    (worker,) = fleet.workers

    async def test() -> None:
        await fleet.become_idle(worker)
        if placed:
            await on_a_thread(place_on, worker, execution)
        await on_a_thread(ApiToken.objects.update, revoked_at=datetime.now(UTC))
        assert (await fleet.claim(worker, seconds=10)).status == 409
        assert (await fleet.claim(worker, seconds=10)).status == 401, "what the read has found is forgotten"

    asyncio.run(test())
    execution.refresh_from_db()
    assert execution.state == ("queued" if placed else "ready")


def test_memory_of_an_idle_worker_needs_its_token_and_incarnation(bridge: Bridge) -> None:
    fleet = RemoteFleet(bridge, 1)
    (worker,) = fleet.workers

    async def test() -> None:
        await fleet.become_idle(worker)
        body = {"incarnation": worker.incarnation, "held": [], "wait_seconds": 1}
        foreign = post(f"workers/{worker.worker_id}/claim", {"Authorization": f"Bearer {generate_secret()}"}, body)
        await foreign.run(bridge)
        assert foreign.status == 401
        later = Registration(worker.worker_id, worker.incarnation + 1)
        assert (await fleet.claim(later, seconds=1)).status == 409

    asyncio.run(test())


def test_worker_that_registered_with_another_token_gives_nothing_to_the_former_one(bridge: Bridge) -> None:
    fleet, execution = RemoteFleet(bridge, 1), make_execution()
    (worker,) = fleet.workers

    async def test() -> None:
        await fleet.become_idle(worker)
        replaced = await on_a_thread(replace_token, fleet)
        await on_a_thread(place_on, replaced, execution)
        assert (await fleet.claim(replaced, seconds=1)).status == 404

    asyncio.run(test())
    execution.refresh_from_db()
    assert execution.state == "queued"


def replace_token(fleet: RemoteFleet) -> Registration:
    """Register the only worker with a new token, the former one being revoked."""
    new = store_token(
        owner=fleet.token.owner, name="new", secret=generate_secret(), scope=TokenScope.WORKER, max_workers=1
    )
    ApiToken.objects.filter(id=fleet.token.id).update(revoked_at=datetime.now(UTC))
    offer = WorkerOffer("w0", Worker.objects.get().instance, "default", "h", 8, 8.0, 8192, 8192, ["bash"], {})
    return register_worker(offer, token_id=new.id)


def test_memory_of_idle_workers_expires(bridge: Bridge, reads: list[UUID], monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = RemoteFleet(bridge, 1)
    (worker,) = fleet.workers

    async def test() -> None:
        await fleet.become_idle(worker)
        monkeypatch.setattr(limits, "IDLE_WORKER_SECONDS", 0.0)
        before = len(reads)
        await fleet.claim(worker, seconds=LOOK_SECONDS * 4)
        assert len(reads) > before

    asyncio.run(test())


def test_ended_lease_ends_the_wait(bridge: Bridge) -> None:
    fleet = RemoteFleet(bridge, 1)
    (worker,) = fleet.workers

    async def test() -> None:
        waiting = fleet.claim(worker, seconds=15)
        await all_wait(1)
        await on_a_thread(Worker.objects.update, lease_until=datetime.now(UTC) - timedelta(seconds=1))
        assert (await waiting).status == 409

    asyncio.run(test())


def test_cancelled_execution_does_not_end_the_wait(bridge: Bridge, reads: list[UUID]) -> None:
    fleet, execution = RemoteFleet(bridge, 1), make_execution()
    (worker,) = fleet.workers
    claim_on(worker, execution)
    Execution.objects.update(cancel_requested_at=datetime.now(UTC))

    async def test() -> None:
        assert (await fleet.claim(worker, seconds=LOOK_SECONDS * 10)).json == NOTHING

    asyncio.run(test())
    assert len(reads) <= 3
