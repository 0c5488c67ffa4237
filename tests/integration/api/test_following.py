"""A stream tells what happens until the end, goes on where it broke off, and gives its seat back whoever hangs up."""

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
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from jobs import conf, wakeups
from jobs.models import ApiToken, Execution
from jobs.protocol import Chunk, Hold, Report
from jobs.services import commands, following, status_cache, transitions
from jobs.services.attempts import finish_attempt
from jobs.services.logs import append_chunks
from jobs.services.tokens import new_secret, revoke_token, store_token
from jobs.states import Reason
from tests.factories import claim_on, hold_of, make_execution, make_job, make_user, make_worker, run_on
from tests.integration.api.conftest import API
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
SEATS = 3
DEADLINE = 20.0


@pytest.fixture(autouse=True)
def _few_seats(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.PUNCTUAL_WAITING_FOLLOWERS = settings.PUNCTUAL_WAITING_FOLLOWERS_EACH = SEATS
    patient = wakeups.HurriedRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=5)
    monkeypatch.setattr(status_cache, "hurried_redis", lambda: patient)
    following.seats.cache_clear()
    yield
    wait_for(lambda: free_seats() == SEATS, "every seat is free again", seconds=DEADLINE)
    following.seats.cache_clear()


def free_seats() -> int:
    return following.seats().free


def http_of(user: User, live_server: LiveServer) -> httpx.Client:
    secret = new_secret()
    store_token(owner=user, name="test", secret=secret)
    headers = {"Authorization": f"Bearer {secret}"}
    return httpx.Client(base_url=f"{live_server.url}{API}", headers=headers, timeout=DEADLINE, trust_env=False)


@pytest.fixture
def http(live_server: LiveServer, owner: User) -> Iterator[httpx.Client]:
    with http_of(owner, live_server) as client:
        yield client


@pytest.fixture
def hold(owner: User) -> Hold:
    return run_on(make_worker(), make_execution(job=make_job(owner=owner, retry={"max_attempts": 2})))


class Follower:
    """Reads a stream in a thread; the events are there as they come."""

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


def write(hold: Hold, sequence: int, text: str) -> None:
    append_chunks(hold, [Chunk(sequence, "stdout", datetime.now(UTC), text.encode())])


def finish(hold: Hold, exit_code: int = 0) -> None:
    finish_attempt(hold, Report(Reason.EXIT, exit_code=exit_code))


def run_again(hold: Hold) -> Hold:
    """Its next attempt, without the pause before it."""
    Execution.objects.filter(id=hold.execution_id).update(retry_at=datetime.now(UTC))
    transitions.wake_backed_off()
    return run_on(make_worker(), Execution.objects.get(id=hold.execution_id))


def seconds_of(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_the_status_is_streamed_until_the_end_and_once_it_is_known_there_is_no_more(
    http: httpx.Client, owner: User
) -> None:
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


def test_a_log_is_streamed_over_all_attempts_and_goes_on_where_it_broke_off(http: httpx.Client, hold: Hold) -> None:
    address = f"/executions/{hold.execution_id}/logs?follow=1"
    write(hold, 0, "a\n")
    follower = Follower(http, address)
    follower.wait_for(1)
    write(hold, 1, "b")
    write(hold, 2, "\0ü\r\n\n")
    follower.wait_for(3)
    finish(hold, exit_code=1)
    second = run_again(hold)
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


def test_a_stream_ends_when_its_token_is_revoked(http: httpx.Client, hold: Hold, owner: User) -> None:
    address = f"/executions/{hold.execution_id}"
    followers = [Follower(http, f"{address}?follow=1"), Follower(http, f"{address}/logs?follow=1")]
    wait_for(lambda: free_seats() == SEATS - 2, "both follow", seconds=DEADLINE)
    revoke_token(ApiToken.objects.get(owner=owner).id)
    for follower in followers:
        follower.wait_for_end()
        assert "end" not in follower.kinds()


def test_who_hangs_up_frees_the_seat_and_who_finds_none_is_told_how_things_stand(
    http: httpx.Client, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conf, "FOLLOW_HEARTBEAT_SECONDS", 0.1)
    addresses = [f"/executions/{hold.execution_id}?follow=1", f"/executions/{hold.execution_id}/logs?follow=1"]
    followers = [Follower(http, addresses[number % 2]) for number in range(SEATS)]
    wait_for(lambda: free_seats() == 0, "all seats are taken", seconds=DEADLINE)
    late = [Follower(http, addresses[0]) for _ in range(10)]
    for follower in late:
        follower.wait_for_end()
        assert follower.kinds() == ["status"]
    assert seconds_of(lambda: http.get(f"/executions/{hold.execution_id}?wait=20")) < 10
    for follower in followers:
        wait_for(lambda seen=follower: seen.heartbeats, "it is alive", seconds=DEADLINE)  # type: ignore[misc]
        follower.leave()
    wait_for(lambda: free_seats() == SEATS, "the seats are free", seconds=DEADLINE)


def test_nobody_takes_the_seats_of_all(
    http: httpx.Client, hold: Hold, live_server: LiveServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PUNCTUAL_WAITING_FOLLOWERS_EACH = SEATS - 1
    monkeypatch.setattr(conf, "FOLLOW_HEARTBEAT_SECONDS", 0.1)
    address = f"/executions/{hold.execution_id}"
    greedy = [Follower(http, f"{address}?follow=1") for _ in range(SEATS - 1)]
    wait_for(lambda: free_seats() == 1, "all seats of one user are taken", seconds=DEADLINE)
    for late in (f"{address}?follow=1", f"{address}/logs?follow=1"):
        Follower(http, late).wait_for_end()
    assert seconds_of(lambda: http.get(f"{address}?wait=20")) < 10
    assert seconds_of(lambda: http.get(f"{address}/logs?format=json&wait=20")) < 10
    with http_of(make_user(is_staff=True), live_server) as other:
        modest = Follower(other, f"{address}?follow=1")
        wait_for(lambda: modest.heartbeats, "another is told what happens", seconds=DEADLINE)
        assert free_seats() == 0
        for follower in (*greedy, modest):
            follower.leave()


def test_a_stream_ends_after_a_while_and_when_there_is_nothing_to_see_any_more(
    http: httpx.Client, hold: Hold, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(conf, "FOLLOW_STREAM_SECONDS", 0.3)
    follower = Follower(http, f"/executions/{hold.execution_id}?follow=1")
    follower.wait_for_end()
    assert follower.kinds() == ["status"]
    monkeypatch.undo()
    follower = Follower(http, f"/executions/{hold.execution_id}/logs?follow=1")
    wait_for(lambda: free_seats() < SEATS, "it follows", seconds=DEADLINE)
    job = Execution.objects.get(id=hold.execution_id).job
    job.owner = make_user()
    job.save()
    follower.wait_for_end()
    assert follower.events == []
    assert "ended early" in caplog.text
    assert http.get(f"/executions/{hold.execution_id}?follow=1").status_code == 404


def test_who_waits_is_answered_at_the_end_or_at_any_change(http: httpx.Client, hold: Hold) -> None:
    address = f"/executions/{hold.execution_id}"
    tag = http.get(address).headers["ETag"]
    answers: list[httpx.Response] = []

    def ask(headers: dict[str, str]) -> threading.Thread:
        thread = threading.Thread(target=lambda: answers.append(http.get(f"{address}?wait=20", headers=headers)))
        thread.start()
        return thread

    changed, ended = ask({"If-None-Match": tag}), ask({})
    wait_for(lambda: free_seats() == SEATS - 2, "both wait", seconds=DEADLINE)
    commands.cancel_execution(hold.execution_id, by="somebody")
    changed.join(DEADLINE / 2)
    assert [answer.json()["status"] for answer in answers] == ["running"]
    assert answers[0].json()["cancel_requested_at"]
    finish(hold_of(Execution.objects.get(id=hold.execution_id)))
    ended.join(DEADLINE / 2)
    assert answers[-1].json()["status"] == "cancelled"
    assert seconds_of(lambda: http.get(f"{address}?wait=20")) < 10
    known = {"If-None-Match": answers[-1].headers["ETag"]}
    asked = time.monotonic()
    assert http.get(f"{address}?wait=20", headers=known).status_code == 304
    assert time.monotonic() - asked < 10, "what has ended does not change any more"


def test_what_makes_no_sense_is_refused(http: httpx.Client, hold: Hold) -> None:
    for query in ("wait=21", "wait=-1", "wait=x", "follow=perhaps", "since=1"):
        refused = http.get(f"/executions/{hold.execution_id}?{query}")
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["field"] == query.partition("=")[0]
