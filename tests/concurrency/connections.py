"""Real concurrency: functions on threads of their own, each with a database connection of its own, started together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connection

Answer = TypeVar("Answer")
DEADLINE_SECONDS = 60


def at_once(calls: Sequence[Callable[[], Answer]]) -> list[Answer]:
    """Lets every call wait at a barrier on its own connection, then go; returns the answers in order."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Answer]) -> Answer:
        try:
            connection.ensure_connection()
            barrier.wait(DEADLINE_SECONDS)
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(DEADLINE_SECONDS) for future in [pool.submit(run, call) for call in calls]]
