"""Clients that send, read or wait slowly do not block others."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.stack import Stack
from tests.support.waiting import wait_for

STALLED = 200
WAITING = 500
BOUND_SECONDS = 5.0
ROUNDS = 3
CLAIMS_A_WORKER = 4
POOL = "slow-clients"  # of its own: nothing of other tests is placed there
LOG_BYTES = 12_000_000  # more than the sockets of both sides hold
BODY_SECONDS = 60.0


class Neighbour:
    """A worker over HTTP, and a user, who want ordinary answers."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        wanted = {"name": "slow clients", "scope": "worker", "pool": POOL, "max_workers": 100}
        made = stack.api.post("/tokens", json=wanted).raise_for_status().json()
        self.headers = {"Authorization": f"Bearer {made['token']}"}
        self.worker = self.register()

    def register(self) -> Worker:
        offer = {"name": f"neighbour-{uuid4().hex[:8]}", "instance": str(uuid4()), "host": "here"}
        capacity = {"pool": POOL, "slots": 1, "cpu": 1, "memory_mb": 64, "disk_mb": 64}
        answer = self._post("workers/register", {**offer, **capacity})
        return Worker(answer["worker_id"], answer["incarnation"])

    def slowest_answer(self) -> float:
        """Seconds of the slowest of: health, a renewal, a claim, an ordinary request."""
        address = f"workers/{self.worker.worker_id}"
        asks = (
            lambda: httpx.get(f"{self._stack.url}/healthz", timeout=15, trust_env=False).raise_for_status(),
            lambda: self._post(f"{address}/heartbeat", self.worker.standing),
            lambda: self._post(f"{address}/claim", {**self.worker.standing, "wait_seconds": 0}),
            lambda: self._stack.api.get("/executions?limit=5", timeout=15).raise_for_status(),
        )
        return max(_seconds_of(ask) for ask in asks)

    def _post(self, address: str, body: dict[str, Any]) -> Any:
        url = f"{self._stack.api.base_url}{address}"
        return httpx.post(url, json=body, headers=self.headers, timeout=15, trust_env=False).raise_for_status().json()


@dataclass(frozen=True)
class Worker:
    worker_id: str
    incarnation: int

    @property
    def standing(self) -> dict[str, Any]:
        return {"incarnation": self.incarnation, "held": []}


def _seconds_of(call: Any) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


@contextmanager
def connections(stack: Stack, requests: list[bytes]) -> Iterator[list[socket.socket]]:
    """Each of them says its request and then neither sends nor reads."""
    with ExitStack() as opened:
        found = []
        for request in requests:
            client = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(10)
            client.connect(("127.0.0.1", stack.web_port))
            client.sendall(request)
            found.append(client)
        yield found


def request_of(method: str, path: str, headers: dict[str, str], body: bytes = b"", length: int | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body or length is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body) if length is None else length}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.fixture
def neighbour(stack: Stack) -> Neighbour:
    return Neighbour(stack)


def assert_answers_stay_quick(neighbour: Neighbour) -> None:
    assert max(neighbour.slowest_answer() for _ in range(ROUNDS)) < BOUND_SECONDS


def test_web_answers_while_hundreds_of_clients_never_send_their_bodies(stack: Stack, neighbour: Neighbour) -> None:
    request = request_of("POST", "/api/v1/login", {}, length=100)
    with connections(stack, [request] * STALLED) as stalled:
        assert_answers_stay_quick(neighbour)
        # Nobody waits for them for ever.
        stalled[0].settimeout(BODY_SECONDS)
        answer = stalled[0].recv(4096)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"application/problem+json" in answer


def test_web_answers_while_hundreds_of_clients_do_not_read_a_large_log(stack: Stack, neighbour: Neighbour) -> None:
    script = f"head -c {LOG_BYTES} /dev/zero | tr '\\0' x | fold -w 200"
    execution = stack.wait_for_end(stack.submit(name="large log", runtime="bash", script=script))
    request = request_of("GET", f"/api/v1/executions/{execution['id']}/logs", dict(stack.api.headers))
    with connections(stack, [request] * STALLED):
        assert_answers_stay_quick(neighbour)
    wait_for(lambda: len(stack.log(execution).encode()) >= LOG_BYTES, "somebody who reads gets all of it", every=1)


def test_web_answers_while_hundreds_wait_for_work_or_follow_a_run(stack: Stack, neighbour: Neighbour) -> None:
    job = stack.submit(name="ticks slowly", runtime="bash", script="while echo tick; do sleep 1; done")
    wait_for(lambda: [e["status"] for e in stack.executions(job)] == ["running"], "it runs")
    execution = stack.executions(job)[0]
    third = WAITING // 3
    workers = [neighbour.register() for _ in range(third // CLAIMS_A_WORKER)]
    claims = [_claim_of(worker, neighbour.headers) for worker in workers] * CLAIMS_A_WORKER
    queries = ("/logs?follow=1", "?wait=20")
    headers = dict(stack.api.headers)
    follows = [request_of("GET", f"/api/v1/executions/{execution['id']}{query}", headers) for query in queries] * third
    try:
        with connections(stack, [*claims, *follows]) as waiting:
            assert_answers_stay_quick(neighbour)
            silent = sum(map(_is_silent, waiting))
            assert silent >= len(claims) + third, "claims, and those that wait for the end, wait as they asked to"
    finally:
        stack.api.put(f"/executions/{execution['id']}/cancel").raise_for_status()


def _claim_of(worker: Worker, headers: dict[str, str]) -> bytes:
    body = json.dumps({**worker.standing, "wait_seconds": 20}).encode()
    return request_of("POST", f"/api/v1/workers/{worker.worker_id}/claim", headers, body)


def test_web_lets_go_of_clients_that_say_nothing(stack: Stack, neighbour: Neighbour) -> None:
    web = stack.process("web")

    def open_here() -> int:
        children = web.children(recursive=True)
        return sum(len(os.listdir(f"/proc/{child.pid}/fd")) for child in children)

    before = open_here()
    with connections(stack, [b"", b"GET /"] * (STALLED // 2)):
        wait_for(lambda: open_here() >= before + STALLED, "all of them are connected")
        assert_answers_stay_quick(neighbour)
        wait_for(lambda: open_here() < before + STALLED // 2, "they are closed", seconds=90, every=0.5)


def _is_silent(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1, socket.MSG_PEEK) == b"?"
    except BlockingIOError:
        return True
