"""Real concurrency: functions on threads of their own, each with a database connection of its own, started together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connection, transaction

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


def beside(
    first: Callable[[], object], second: Callable[[], Answer], *, then: Callable[[], object] = lambda: None
) -> Answer:
    """Starts the second while the first is done but not committed, which it is once the second waits or has ended.

    `then`: what the first does before it commits.
    """
    done, ended = threading.Event(), threading.Event()

    def uncommitted() -> None:
        with transaction.atomic():
            first()
            done.set()
            deadline = time.monotonic() + DEADLINE_SECONDS
            while not ended.is_set() and not somebody_waits():
                assert time.monotonic() < deadline, "the second neither waits nor ends"
            then()

    def meanwhile() -> Answer:
        try:
            assert done.wait(DEADLINE_SECONDS)
            return second()
        finally:
            ended.set()

    answers: list[Answer] = at_once([uncommitted, meanwhile])  # type: ignore[list-item]
    return answers[1]


def somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])
