"""One start or stop at a time: two would take each other's half-made stack for a broken one."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.problems import StackProblem

POLL_SECONDS = 0.1


@contextmanager
def exclusively(layout: Layout, *, seconds: float = 0.0) -> Iterator[None]:
    """Holds the lock of the stack; waits at most `seconds` for whoever has it."""
    deadline = time.monotonic() + seconds
    with (layout.run / "lock").open("w") as file:
        while not _take(file):
            if time.monotonic() >= deadline:
                raise StackProblem(
                    f"Another `./punctual up` or `./punctual down` is at work in {layout.var}: "
                    "wait until it is done, then run this again."
                )
            time.sleep(POLL_SECONDS)
        yield


def _take(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
