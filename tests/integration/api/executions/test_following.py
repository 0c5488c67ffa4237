"""Event streams: complete until the end, resumable, and freeing their waiter on disconnect."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from jobs.access.tokens import generate_secret, revoke_token, store_token
from jobs.db import wakeups
from jobs.definitions import lifecycle
from jobs.domain import limits
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, Chunk, RunReport
from jobs.execution import status_cache, transitions, waiters
from jobs.execution.attempts import finish_attempt
from jobs.logs.store import append_chunks
from jobs.models import ApiToken, Execution
from tests.integration.api.conftest import API
from tests.support.factories import claim_on, hold_of, make_execution, make_job, make_user, make_worker, run_on
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
WAITERS = 3
DEADLINE = 20.0


@pytest.fixture(autouse=True)
def _few_waiters(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.PUNCTUAL_WAITING_FOLLOWERS = settings.PUNCTUAL_WAITING_FOLLOWERS_EACH = WAITERS
    patient = wakeups.BestEffortRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=5)
    monkeypatch.setattr(status_cache, "best_effort_redis", lambda: patient)
    waiters.execution_waiter_pool.cache_clear()
    yield
    wait_for(lambda: count_free_waiters() == WAITERS, "all waiters are released", seconds=DEADLINE)
    waiters.execution_waiter_pool.cache_clear()


def count_free_waiters() -> int:
    return waiters.execution_waiter_pool().free


def http_of(user: User, live_server: LiveServer) -> httpx.Client:
    secret = generate_secret()
    store_token(owner=user, name="test", secret=secret)
    headers = {"Authorization": f"Bearer {secret}"}
    return httpx.Client(base_url=f"{live_server.url}{API}", headers=headers, timeout=DEADLINE, trust_env=False)


@pytest.fixture
def http(live_server: LiveServer, owner: User) -> Iterator[httpx.Client]:
    with http_of(owner, live_server) as client:
        yield client


@pytest.fixture
def fence(owner: User) -> AttemptFence:
    return run_on(make_worker(), make_execution(job=make_job(owner=owner, retry={"max_attempts": 2})))


class Follower:
    """Read a stream in a thread and collect its events."""

    def __init__(self, http: httpx.Client, address: str, last_id: str = "") -> None:
        self.events: list[tuple[str, str, Any]] = []  # kind, id, data
        self.status = 0
        self.heartbeats = 0
        self.over = False
        self._leave = threading.Event()
        headers = {"Last-Event-ID": last_id} if last_id else {}
        self._thread = threading.Thread(target=self._read, args=(http, address, headers))
        self._thread.start()

    def _read(self, http: httpx.Client, address: str, headers: dict[str, str]) -> None:
        with http.stream("GET", address, headers=headers) as response:
            self.status = response.status_code
            found: dict[str, str] = {}
            for line in response.iter_lines():
                if self._leave.is_set():
                    return
                name, _, value = line.partition(": ")
                if not line and "event" in found:
                    self.events.append((found["event"], found.get("id", ""), json.loads(found["data"])))
                    found = {}
                self.heartbeats += line == ":"
                found |= {name: value} if value else {}
        self.over = True

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.events]

    def wait_for(self, count: int) -> None:
        wait_for(lambda: len(self.events) >= count, f"{count} events", seconds=DEADLINE)

    def wait_for_end(self) -> None:
        self._thread.join(DEADLINE)
        assert self.over

    def leave(self) -> None:
        self._leave.set()
        self._thread.join(DEADLINE)


def write(fence: AttemptFence, sequence: int, text: str) -> None:
    append_chunks(fence, [Chunk(sequence, "stdout", datetime.now(UTC), text.encode())])


def finish(fence: AttemptFence, exit_code: int = 0) -> None:
    finish_attempt(fence, RunReport(Reason.EXIT, exit_code=exit_code))


def run_again(fence: AttemptFence) -> AttemptFence:
    """Start the next attempt without the retry delay."""
    Execution.objects.filter(id=fence.execution_id).update(retry_at=datetime.now(UTC))
    transitions.wake_backed_off()
    return run_on(make_worker(), Execution.objects.get(id=fence.execution_id))


def seconds_of(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_status_stream_ends_and_reconnect_gets_204(http: httpx.Client, owner: User) -> None:
    claimed = claim_on(make_worker(), make_execution(job=make_job(owner=owner)))
    address = f"/executions/{claimed.execution_id}?follow=1"
    follower = Follower(http, address)
    follower.wait_for(1)
    transitions.start(claimed, {})
    follower.wait_for(2)
    finish(claimed)
    follower.wait_for_end()
    assert [data["status"] for _, _, data in follower.events] == ["claimed", "running", "succeeded", "succeeded"]
    assert follower.kinds() == ["status", "status", "status", "end"]
    again = Follower(http, address, last_id=follower.events[2][1])
    again.wait_for_end()
    assert (again.status, again.events) == (204, [])
    resumed = Follower(http, address, last_id=follower.events[1][1])
    resumed.wait_for_end()
    assert resumed.kinds() == ["status", "end"]


def test_log_stream_spans_attempts_and_resumes(http: httpx.Client, fence: AttemptFence) -> None:
    address = f"/executions/{fence.execution_id}/logs?follow=1"
    write(fence, 0, "a\n")
    follower = Follower(http, address)
    follower.wait_for(1)
    write(fence, 1, "b")
    write(fence, 2, "\0ü\r\n\n")
    follower.wait_for(3)
    finish(fence, exit_code=1)
    second = run_again(fence)
    write(second, 0, "d")
    follower.wait_for(4)
    finish(second)
    follower.wait_for_end()
    assert [data.get("text") for _, _, data in follower.events] == ["a\n", "b", "\0ü\r\n\n", "d", None]
    assert [own for _, own, _ in follower.events] == ["1:0", "1:1", "1:2", "2:0", ""]
    assert follower.events[-1][2]["status"] == "succeeded"
    for last_id, rest in (("1:1", ["1:2", "2:0", ""]), ("2:0", []), ("nonsense", ["2:0", ""])):
        resumed = Follower(http, address, last_id=last_id)
        resumed.wait_for_end()
        assert [own for _, own, _ in resumed.events] == rest
    only = Follower(http, f"{address}&attempt=1")
    only.wait_for_end()
    assert [own for _, own, _ in only.events] == ["1:0", "1:1", "1:2", ""]


def test_stream_ends_when_token_is_revoked(http: httpx.Client, fence: AttemptFence, owner: User) -> None:
    address = f"/executions/{fence.execution_id}"
    followers = [Follower(http, f"{address}?follow=1"), Follower(http, f"{address}/logs?follow=1")]
    wait_for(lambda: count_free_waiters() == WAITERS - 2, "both follow", seconds=DEADLINE)
    revoke_token(ApiToken.objects.get(owner=owner).id)
    for follower in followers:
        follower.wait_for_end()
        assert "end" not in follower.kinds()


def log_out(browser: Client, user: User) -> None:
    browser.logout()


def deactivate(browser: Client, user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def change_password(browser: Client, user: User) -> None:
    user.set_password("another")
    user.save()


@pytest.mark.parametrize("lose", [log_out, deactivate, change_password])
def test_stream_ends_with_session(
    fence: AttemptFence, owner: User, live_server: LiveServer, lose: Callable[[Client, User], None]
) -> None:
    browser = Client()
    browser.force_login(owner)
    cookies = {name: morsel.value for name, morsel in browser.cookies.items()}
    with httpx.Client(base_url=f"{live_server.url}{API}", cookies=cookies, timeout=DEADLINE, trust_env=False) as http:
        address = f"/executions/{fence.execution_id}"
        followers = [Follower(http, f"{address}?follow=1"), Follower(http, f"{address}/logs?follow=1")]
        wait_for(lambda: count_free_waiters() == WAITERS - 2, "both follow", seconds=DEADLINE)
        write(fence, 0, "before")
        followers[1].wait_for(1)
        lose(browser, owner)
        for follower in followers:
            follower.wait_for_end()
            assert "end" not in follower.kinds()
        assert http.get(address).status_code == 401


def test_disconnect_frees_waiter_and_full_pool_sends_current_state(
    http: httpx.Client, fence: AttemptFence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLLOW_HEARTBEAT_SECONDS", 0.1)
    addresses = [f"/executions/{fence.execution_id}?follow=1", f"/executions/{fence.execution_id}/logs?follow=1"]
    followers = [Follower(http, addresses[number % 2]) for number in range(WAITERS)]
    wait_for(lambda: count_free_waiters() == 0, "all waiters are in use", seconds=DEADLINE)
    late = [Follower(http, addresses[0]) for _ in range(10)]
    for follower in late:
        follower.wait_for_end()
        assert follower.kinds() == ["status"]
    assert seconds_of(lambda: http.get(f"/executions/{fence.execution_id}?wait=20")) < 10
    for follower in followers:
        wait_for(lambda seen=follower: seen.heartbeats, "it is alive", seconds=DEADLINE)  # type: ignore[misc]
        follower.leave()
    wait_for(lambda: count_free_waiters() == WAITERS, "the waiters are released", seconds=DEADLINE)


def test_waiters_per_user_are_limited(
    http: httpx.Client,
    fence: AttemptFence,
    live_server: LiveServer,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.PUNCTUAL_WAITING_FOLLOWERS_EACH = WAITERS - 1
    monkeypatch.setattr(limits, "FOLLOW_HEARTBEAT_SECONDS", 0.1)
    address = f"/executions/{fence.execution_id}"
    greedy = [Follower(http, f"{address}?follow=1") for _ in range(WAITERS - 1)]
    wait_for(lambda: count_free_waiters() == 1, "one user has all waiters they may have", seconds=DEADLINE)
    for late in (f"{address}?follow=1", f"{address}/logs?follow=1"):
        Follower(http, late).wait_for_end()
    assert seconds_of(lambda: http.get(f"{address}?wait=20")) < 10
    assert seconds_of(lambda: http.get(f"{address}/logs?format=json&wait=20")) < 10
    with http_of(make_user(is_staff=True), live_server) as other:
        modest = Follower(other, f"{address}?follow=1")
        wait_for(lambda: modest.heartbeats, "another user still gets events", seconds=DEADLINE)
        assert count_free_waiters() == 0
        for follower in (*greedy, modest):
            follower.leave()


def test_stream_ends_at_time_limit_and_when_access_is_lost(
    http: httpx.Client, fence: AttemptFence, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "FOLLOW_STREAM_SECONDS", 0.3)
    follower = Follower(http, f"/executions/{fence.execution_id}?follow=1")
    follower.wait_for_end()
    assert follower.kinds() == ["status"]
    monkeypatch.undo()
    follower = Follower(http, f"/executions/{fence.execution_id}/logs?follow=1")
    wait_for(lambda: count_free_waiters() < WAITERS, "it follows", seconds=DEADLINE)
    job = Execution.objects.get(id=fence.execution_id).job
    job.owner = make_user()
    job.save()
    follower.wait_for_end()
    assert follower.events == []
    assert "ended early" in caplog.text
    assert http.get(f"/executions/{fence.execution_id}?follow=1").status_code == 404


def test_wait_responds_at_end_or_change(http: httpx.Client, fence: AttemptFence) -> None:
    address = f"/executions/{fence.execution_id}"
    tag = http.get(address).headers["ETag"]
    answers: list[httpx.Response] = []

    def ask(headers: dict[str, str]) -> threading.Thread:
        thread = threading.Thread(target=lambda: answers.append(http.get(f"{address}?wait=20", headers=headers)))
        thread.start()
        return thread

    changed, ended = ask({"If-None-Match": tag}), ask({})
    wait_for(lambda: count_free_waiters() == WAITERS - 2, "both wait", seconds=DEADLINE)
    lifecycle.cancel_execution(fence.execution_id, by="somebody")
    changed.join(DEADLINE / 2)
    assert [answer.json()["status"] for answer in answers] == ["running"]
    assert answers[0].json()["cancel_requested_at"]
    finish(hold_of(Execution.objects.get(id=fence.execution_id)))
    ended.join(DEADLINE / 2)
    assert answers[-1].json()["status"] == "cancelled"
    assert seconds_of(lambda: http.get(f"{address}?wait=20")) < 10
    known = {"If-None-Match": answers[-1].headers["ETag"]}
    asked = time.monotonic()
    assert http.get(f"{address}?wait=20", headers=known).status_code == 304
    assert time.monotonic() - asked < 10, "a finished attempt does not change"


def test_invalid_follow_parameters_are_rejected(http: httpx.Client, fence: AttemptFence) -> None:
    for query in ("wait=21", "wait=-1", "wait=x", "follow=perhaps", "since=1"):
        refused = http.get(f"/executions/{fence.execution_id}?{query}")
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["field"] == query.partition("=")[0]
