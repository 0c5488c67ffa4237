"""Waits for a condition with a deadline, never for an amount of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def eventually(condition: Callable[[], object], *, seconds: float = 15) -> bool:
    """Whether the condition comes to hold in time; for an assertion that says by itself what is the matter."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def wait_for(condition: Callable[[], Answer], what: str, *, seconds: float = 60, every: float = 0.01) -> Answer:
    """Polls until the condition holds and returns what it returned; fails with words when it never does."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        time.sleep(every)
