"""Many follow one run over the real web server: some wait, the others are told, and nobody else is kept waiting."""

from __future__ import annotations

import threading
import time

import httpx

from tests.acceptance.stack import Stack
from tests.waiting import wait_for

FOLLOWERS = 33  # one more than web has threads
SEATS = 4  # half of those that there are: all of these are one user's
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


def test_followers_starve_nobody_and_free_their_seats_when_they_hang_up(stack: Stack) -> None:
    job = stack.submit(name="ticks", runtime="bash", script=TICKS)
    wait_for(lambda: [e["status"] for e in stack.executions(job)] == ["running"], "it runs")
    execution = stack.executions(job)[0]
    address = f"executions/{execution['id']}/logs?follow=1"
    followers = [Follower(stack, address) for _ in range(FOLLOWERS)]
    try:
        wait_for(lambda: sum(f.over for f in followers) == FOLLOWERS - SEATS, "most are told and sent away")
        began = time.monotonic()
        assert stack.api.get("/usage").status_code == 200
        assert time.monotonic() - began < 5
        wait_for(lambda: sum(f.seconds > 0.5 for f in followers if not f.over) == SEATS, "the others go on")
    finally:
        for follower in followers:
            follower.leave()

    def get_a_seat() -> Follower | None:
        found = Follower(stack, address)
        wait_for(lambda: found.over or found.seconds > 0.5, "it has a seat or has not")
        return None if found.over else found

    last = wait_for(get_a_seat, "a seat is free again")
    assert last is not None
    stack.api.put(f"/executions/{execution['id']}/cancel").raise_for_status()
    wait_for(lambda: last.over, "it has ended")
    assert last.events[-1] == "end"
