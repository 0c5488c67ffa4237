"""Many clients follow one run over the real web server without delaying others."""

from __future__ import annotations

import threading
import time

import httpx

from tests.support.stack import Stack
from tests.support.waiting import wait_for

FOLLOWERS = 40  # more than web has threads
TICKS = "while echo tick; do sleep 0.2; done"


class Follower:
    def __init__(self, stack: Stack, address: str) -> None:
        self.events: list[str] = []
        self.seconds = 0.0  # from the first event to the last
        self.over = False
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(stack, address))
        self._thread.start()

    def _read(self, stack: Stack, address: str) -> None:
        began = None
        with httpx.stream("GET", f"{stack.api.base_url}{address}", headers=stack.api.headers, timeout=20) as response:
            for line in response.iter_lines():
                if self._left.is_set():
                    return
                if line.startswith("event: "):
                    self.events.append(line.removeprefix("event: "))
                    began = began or time.monotonic()
                    self.seconds = time.monotonic() - began
        self.over = True

    def leave(self) -> None:
        self._left.set()
        self._thread.join(20)


def test_more_followers_than_threads_follow_and_everybody_else_is_answered(stack: Stack) -> None:
    job = stack.submit(name="ticks", runtime="bash", script=TICKS)
    wait_for(lambda: [e["status"] for e in stack.executions(job)] == ["running"], "it runs")
    execution = stack.executions(job)[0]
    followers = [Follower(stack, f"executions/{execution['id']}/logs?follow=1") for _ in range(FOLLOWERS)]
    try:
        wait_for(lambda: all(f.seconds > 0.5 for f in followers), "all of them are told what happens")
        assert not any(f.over for f in followers)
        began = time.monotonic()
        assert stack.api.get("/usage").status_code == 200
        assert time.monotonic() - began < 5
        stack.api.put(f"/executions/{execution['id']}/cancel").raise_for_status()
        wait_for(lambda: all(f.over for f in followers), "it has ended")
        assert {f.events[-1] for f in followers} == {"end"}
    finally:
        for follower in followers:
            follower.leave()
