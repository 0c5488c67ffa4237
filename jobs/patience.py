"""How long a thread waits for the database to say anything: for whoever must not wait for one that froze.

A statement timeout is kept by the server and a broken connection is noticed by the kernel; a server that is stopped, or
stuck on its disk, keeps its connections open and says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from psycopg import Connection, OperationalError
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

Answer = TypeVar("Answer")
LOOK_SECONDS = 0.1
_patience: ContextVar[float | None] = ContextVar("patience", default=None)


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Within it, no single answer of the database is waited for longer; the connection is then given up."""
    token = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(token)


class PatientConnection(Connection[Any]):
    def wait(self, gen: PQGen[Answer], interval: float = LOOK_SECONDS, timeout: float | None = None) -> Answer:
        try:
            return super().wait(gen, interval, _patience.get() if timeout is None else timeout)
        except OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                # Its answer may still come, and would be taken for that of another statement.
                self.pgconn.finish()
            raise
