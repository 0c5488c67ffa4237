"""Bounds on what a transaction may wait for; SET LOCAL, so that a pooler between us and Postgres does not mind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def bounded(*, statement_seconds: float, lock_seconds: float = 5) -> Iterator[None]:
    """To be entered first inside a transaction: a slow or stuck database ends it with an error instead of hanging."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true),"
            " set_config('idle_in_transaction_session_timeout', %s, true)",
            [f"{int(value * 1000)}ms" for value in (statement_seconds, lock_seconds, statement_seconds * 3)],
        )
    yield


@contextmanager
def pooled() -> Iterator[None]:
    """Gives the connection back to the pool afterwards: a thread that waits for something else must not hold one."""
    try:
        yield
    finally:
        connection.close()
