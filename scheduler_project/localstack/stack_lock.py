"""The lock of a stack: two starts or stops would mistake each other's partial stack for a broken one."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import Layout

POLL_SECONDS = 0.1


@contextmanager
def hold_stack_lock(layout: Layout, *, seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of the stack; wait for it at most `seconds`."""
    deadline = time.monotonic() + seconds
    with (layout.run / "lock").open("w") as file:
        while not _try_lock(file):
            if time.monotonic() >= deadline:
                raise StackError(
                    f"Another `./punctual up` or `./punctual down` is running in {layout.var}: "
                    "wait until it has finished, then run this again."
                )
            time.sleep(POLL_SECONDS)
        yield


def _try_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
