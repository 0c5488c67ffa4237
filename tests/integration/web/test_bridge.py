"""The ASGI application: ordinary views, and waiting, streaming or slow requests that hold no thread."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection

from jobs.api.resources.executions import logs
from jobs.db import wakeups
from jobs.db.wakeups import wake_worker
from jobs.domain import limits
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, Chunk, Registration, RunReport
from jobs.execution import status_cache, waiters
from jobs.execution.attempts import finish_attempt
from jobs.fleet import remote_claims
from jobs.logs.store import append_chunks
from jobs.models import Execution, Queue, TokenScope, Worker
from scheduler_project.web import request_bodies
from scheduler_project.web.bridge import Bridge
from tests.integration.api.conftest import API, job_body
from tests.integration.web.exchange import Exchange, bearer_of, post, until
from tests.support.factories import make_execution, make_job, make_user, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _own_waiters() -> Iterator[None]:
    caches = (waiters.execution_waiter_pool, remote_claims.claim_waiter_pool, logs.get_download_slots)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        assert cache().in_use == 0, "all waiters are released"
        cache.cache_clear()


@pytest.fixture(autouse=True)
def _patient_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer timeouts: on a busy machine the usual ones lose wake-ups, and nothing else ends a wait here."""
    patient = wakeups.BestEffortRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=5)
    for module in (wakeups, status_cache):
        monkeypatch.setattr(module, "best_effort_redis", lambda: patient)


@pytest.fixture
def fence(owner: User) -> AttemptFence:
    return run_on(make_worker(), make_execution(job=make_job(owner=owner)))


def write(fence: AttemptFence, sequence: int, data: bytes) -> None:
    append_chunks(fence, [Chunk(sequence, "stdout", datetime.now(UTC), data)])


async def on_a_thread(call: Any, *arguments: Any) -> Any:
    def run() -> Any:
        try:
            return call(*arguments)
        finally:
            connection.close()

    return await asyncio.to_thread(run)


def ask(bridge: Bridge, method: str, address: str, headers: dict[str, str] | None = None, *body: bytes) -> Exchange:
    async def talk() -> Exchange:
        exchange = Exchange(method, address, headers)
        for number, piece in enumerate(body):
            exchange.feed(piece, more=number < len(body) - 1)
        await exchange.run(bridge)
        return exchange

    return asyncio.run(talk())


def test_ordinary_requests_work(bridge: Bridge, bearer: dict[str, str], bucket: None) -> None:
    Queue.objects.get_or_create(name="default")
    health = ask(bridge, "GET", "/healthz")
    assert (health.status, health.json) == (200, {"status": "ok"})
    assert health.headers["content-length"] == str(len(health.body))
    body = json.dumps(job_body(name="über")).encode()
    # Chunked, without a length.
    created = ask(
        bridge,
        "POST",
        f"{API}/jobs",
        {**bearer, "Content-Type": "application/json", "Transfer-Encoding": "chunked"},
        body[:9],
        body[9:],
    )
    assert created.status == 201, created.body
    assert created.json["name"] == "über"
    found = ask(bridge, "GET", f"{API}/jobs?search=%C3%BCber", bearer)
    assert [each["id"] for each in found.json["results"]] == [created.json["id"]]
    login = ask(bridge, "GET", "/login")
    assert "csrftoken=" in login.headers["set-cookie"]
    missing = ask(bridge, "GET", f"{API}/nothing/\ufffd?a=%ff")
    assert (missing.status, missing.headers["content-type"]) == (404, "application/problem+json")


def test_too_large_slow_or_many_bodies_are_rejected(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = ask(bridge, "POST", f"{API}/login", {"Content-Length": "100001"})
    assert (declared.status, declared.headers["connection"]) == (413, "close")
    undeclared = ask(bridge, "POST", f"{API}/login", {"Transfer-Encoding": "chunked"}, b"x" * 60_000, b"x" * 60_000)
    assert (undeclared.status, undeclared.json["status"]) == (413, 413)
    monkeypatch.setattr(request_bodies, "BODY_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(bridge._bodies, "_total_bytes", 10_000)

    async def feed_half() -> Exchange:
        exchange = Exchange("POST", f"{API}/login", {"Content-Length": "100"})
        exchange.feed(b"x" * 50, more=True)
        await exchange.run(bridge)
        return exchange

    slow = asyncio.run(feed_half())
    assert (slow.status, slow.headers["content-type"]) == (408, "application/problem+json")
    many = ask(bridge, "POST", f"{API}/login", {"Content-Length": "80000"}, b"x" * 80_000)
    assert (many.status, many.headers["retry-after"]) == (503, "2")
    assert bridge._bodies.held_bytes == 0


def test_disconnect_during_body_frees_it(bridge: Bridge) -> None:
    async def hang_up() -> Exchange:
        exchange = Exchange("POST", f"{API}/login", {"Content-Length": "100"})
        exchange.feed(b"x" * 50, more=True)
        exchange.hang_up()
        await exchange.run(bridge)
        return exchange

    assert asyncio.run(hang_up()).sent == []
    assert bridge._bodies.held_bytes == 0


def test_waiting_claim_holds_no_thread_and_is_woken(
    bridge: Bridge, bucket: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only a wake-up can end the wait in time.
    monkeypatch.setattr(limits, "CLAIM_POLL_SECONDS", 20.0)
    worker_bearer = bearer_of(make_user(is_staff=True), TokenScope.WORKER)
    offer = {"name": "w", "instance": "1b4e28ba-2fa1-4d3b-a3f5-ef19b5a7633b", "host": "h", "slots": 1, "cpu": 1}
    offer |= {"memory_mb": 512, "disk_mb": 512, "capabilities": ["bash"]}

    async def test() -> None:
        register = post("workers/register", worker_bearer, offer)
        await register.run(bridge)
        registered = register.json
        claim = {"incarnation": registered["incarnation"], "held": [], "wait_seconds": 20}
        claims = [post(f"workers/{registered['worker_id']}/claim", worker_bearer, claim) for _ in range(5)]
        asked = {asyncio.ensure_future(each.run(bridge)): each for each in claims[:4]}
        await until(lambda: remote_claims.claim_waiter_pool().in_use == len(asked), "all of them wait")
        too_many = claims[-1]
        await too_many.run(bridge)
        assert too_many.json == {"executions": [], "orders": []}

        def place() -> UUID:
            worker = Worker.objects.get(id=registered["worker_id"])
            fence = place_on(Registration(worker.id, worker.incarnation), make_execution())
            wake_worker(worker.id)
            return fence.execution_id

        began = time.monotonic()
        placed = await on_a_thread(place)
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        assert time.monotonic() - began < 10
        assert done
        # None of them lists held attempts, so each gets the same claim, as after a lost response.
        for answer in (asked[each] for each in done):
            (claimed,) = answer.json["executions"]
            assert claimed["execution_id"] == str(placed)
            assert answer.headers["cache-control"] == "no-store"
            assert "content-length" in answer.headers
        for each in asked.values():
            each.hang_up()
        await asyncio.gather(*asked)

    asyncio.run(test())


def test_follower_gets_events_and_frees_waiter_on_disconnect(
    bridge: Bridge, fence: AttemptFence, bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLLOW_POLL_SECONDS", 20.0)

    async def test() -> None:
        threads = threading.active_count()
        followers = [Exchange("GET", f"{API}/executions/{fence.execution_id}/logs?follow=1", bearer) for _ in range(50)]
        follows = [asyncio.ensure_future(follower.run(bridge)) for follower in followers]
        await until(lambda: waiters.execution_waiter_pool().in_use == len(followers), "all of them follow")
        await on_a_thread(write, fence, 0, b"hello")
        await until(lambda: all(b"hello" in follower.body for follower in followers), "all of them got the event")
        assert followers[0].headers["content-type"] == "text/event-stream"
        assert threading.active_count() - threads < len(followers)
        for follower in followers[1:]:
            follower.hang_up()
        await asyncio.gather(*follows[1:])
        assert waiters.execution_waiter_pool().in_use == 1
        await on_a_thread(finish_attempt, fence, RunReport(Reason.EXIT, exit_code=0))
        await follows[0]
        assert b"event: end" in followers[0].body
        assert followers[0].sent[-1] == {"type": "http.response.body", "body": b""}

    asyncio.run(test())


def test_deferred_response_has_middleware_headers(bridge: Bridge, fence: AttemptFence, bearer: dict[str, str]) -> None:
    async def test() -> None:
        waiting = Exchange("GET", f"{API}/executions/{fence.execution_id}?wait=20", bearer)
        waits = asyncio.ensure_future(waiting.run(bridge))
        await until(lambda: waiters.execution_waiter_pool().in_use == 1, "it waits")
        await on_a_thread(finish_attempt, fence, RunReport(Reason.EXIT, exit_code=0))
        await waits
        assert (waiting.status, waiting.json["status"]) == (200, "succeeded")
        ordinary = Exchange("GET", f"{API}/executions/{fence.execution_id}", bearer)
        await ordinary.run(bridge)
        assert waiting.headers.keys() == ordinary.headers.keys()

    asyncio.run(test())


def test_error_while_waiting_becomes_problem(bridge: Bridge, fence: AttemptFence, bearer: dict[str, str]) -> None:
    async def test() -> None:
        waiting = Exchange("GET", f"{API}/executions/{fence.execution_id}/logs?format=json&wait=20", bearer)
        waits = asyncio.ensure_future(waiting.run(bridge))
        await until(lambda: waiters.execution_waiter_pool().in_use == 1, "it waits")

        def take_away() -> None:
            job = Execution.objects.get(id=fence.execution_id).job
            job.owner = make_user()
            job.save()
            write(fence, 0, b"not for you")

        await on_a_thread(take_away)
        await waits
        assert (waiting.status, waiting.headers["content-type"]) == (404, "application/problem+json")

    asyncio.run(test())


def test_unread_download_holds_no_thread_and_little_memory(
    bridge: Bridge, fence: AttemptFence, bearer: dict[str, str]
) -> None:
    size = 300_000
    for sequence in range(6):
        write(fence, sequence, b"x" * size)
    address = f"{API}/executions/{fence.execution_id}/logs"

    async def test() -> None:
        stalled = [Exchange("GET", address, bearer) for _ in range(limits.MAX_LOG_DOWNLOADS_PER_USER)]
        for exchange in stalled:
            exchange.reads.clear()
        downloads = [asyncio.ensure_future(exchange.run(bridge)) for exchange in stalled]
        await until(lambda: logs.get_download_slots().in_use == len(stalled), "all of them have begun")
        refused = Exchange("GET", address, bearer)
        await refused.run(bridge)
        assert (refused.status, refused.headers["retry-after"]) == (429, "5")
        for exchange in stalled[1:]:
            exchange.hang_up()
        for exchange in stalled:
            exchange.reads.set()
        await asyncio.gather(*downloads)
        assert len(stalled[0].body) == 6 * size
        assert max(len(message.get("body", b"")) for message in stalled[0].sent) <= 64 * 1024
        assert all(len(exchange.body) < 6 * size for exchange in stalled[1:])
        head = Exchange("HEAD", address, bearer)
        await head.run(bridge)
        assert (head.status, head.body) == (200, b"")

    asyncio.run(test())
