"""Waits for conditions of real processes, never for an amount of time."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def eventually(condition: Callable[[], bool], *, seconds: float = 15.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_gone(pid: int) -> bool:
    """A zombie is gone: it waits only for its parent to notice."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
