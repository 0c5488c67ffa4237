"""Client-side read timeouts for Postgres, and the connection class that enforces them.

The server enforces statement timeouts, and the kernel detects broken connections. But a stopped server, or one stuck on
its disk, keeps its connections open without responding, and a demoted primary responds but refuses writes. Neither
recovers on the same connection.

Invariant: every statement of every process passes through `TimeoutConnection.wait`, which closes the connection to an
unresponsive server. Such a connection never returns to the pool.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Self, TypeVar

from psycopg import Connection, Error, OperationalError, errors
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

POLL_SECONDS = 0.1
# Added to the server's own timeout.
TIMEOUT_GRACE_SECONDS = 3.0
REFUSED_OPTIONS_MESSAGE = "unsupported startup parameter"
# The server is read-only, so its other connections are unusable too.
READ_ONLY_SQLSTATES = {errors.ReadOnlySqlTransaction.sqlstate}
# The server has ended or is ending this session.
SESSION_ENDED_SQLSTATES = {
    errors.AdminShutdown.sqlstate,
    errors.CrashShutdown.sqlstate,
    errors.CannotConnectNow.sqlstate,
    errors.DatabaseDropped.sqlstate,
    errors.IdleSessionTimeout.sqlstate,
    errors.IdleInTransactionSessionTimeout.sqlstate,
    errors.TransactionTimeout.sqlstate,
}
_read_timeout_seconds: ContextVar[float | None] = ContextVar("read_timeout_seconds", default=None)


class DatabaseUnresponsive(OperationalError):
    """The server did not respond or refused writes; the connection is closed. A new one may reach another server."""


@contextmanager
def limit_read_time(seconds: float) -> Iterator[None]:
    """Limit the wait for each response of the database, after which the connection is closed. Nested: the shorter."""
    outer = _read_timeout_seconds.get()
    with _set_read_timeout(seconds if outer is None else min(outer, seconds)):
        yield


@contextmanager
def without_read_timeout() -> Iterator[None]:
    """Disable the read timeout, for migrations."""
    with _set_read_timeout(math.inf):
        yield


@contextmanager
def _set_read_timeout(seconds: float) -> Iterator[None]:
    token = _read_timeout_seconds.set(seconds)
    try:
        yield
    finally:
        _read_timeout_seconds.reset(token)


class TimeoutConnection(Connection[Any]):
    # The default outside `limit_read_time`.
    read_timeout_seconds: ClassVar[float] = math.inf
    # Our startup options, omitted if a pooler in front of Postgres refuses them.
    own_options: ClassVar[str] = ""
    pooler_refuses_options: ClassVar[bool] = False
    # Why the last connection attempt failed: the pool connects on its own threads and does not report errors.
    last_failure: ClassVar[str | None] = None

    @classmethod
    def connect(cls, conninfo: str = "", **parameters: Any) -> Self:
        try:
            connection = cls._connect(conninfo, parameters)
        except Error as error:
            cls.last_failure = " ".join(str(error).split())
            raise
        cls.last_failure = None
        return connection

    @classmethod
    def _connect(cls, conninfo: str, parameters: dict[str, Any]) -> Self:
        if cls.pooler_refuses_options:
            return super().connect(conninfo, **cls._without_own_options(parameters))
        try:
            return super().connect(conninfo, **parameters)
        except OperationalError as error:
            if REFUSED_OPTIONS_MESSAGE not in str(error):
                raise
        connection = super().connect(conninfo, **cls._without_own_options(parameters))
        if not cls.pooler_refuses_options:
            cls.pooler_refuses_options = True
            logger.warning(
                "The pooler in front of Postgres refuses session settings: set them for the role instead,"
                " see PgBouncer in docs/operations.md"
            )
        return connection

    @classmethod
    def _without_own_options(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        return parameters | {"options": parameters.get("options", "").replace(cls.own_options, "").strip()}

    def wait(self, gen: PQGen[Answer], interval: float = POLL_SECONDS, timeout: float | None = None) -> Answer:
        if timeout is None:
            timeout = _read_timeout_seconds.get() or self.read_timeout_seconds
        try:
            return super().wait(gen, interval, None if math.isinf(timeout) else timeout)
        except Error as error:
            if error.sqlstate in READ_ONLY_SQLSTATES:
                self._abandon(drain_pool=True)
                raise DatabaseUnresponsive(f"The database is read-only at the moment: {error}") from error
            if error.sqlstate in SESSION_ENDED_SQLSTATES:
                self._abandon(drain_pool=False)
                raise DatabaseUnresponsive(f"The database ended the connection: {error}") from error
            if error.sqlstate is None and self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                # A late response would be read as that of the next statement.
                self._abandon(drain_pool=True)
                raise DatabaseUnresponsive(f"The database did not answer within {timeout:g} s") from error
            raise

    def _abandon(self, *, drain_pool: bool) -> None:
        """Close the connection; `drain_pool`: also the pool's idle connections, which lead to the same server."""
        pool = getattr(self, "_pool", None)
        self.pgconn.finish()
        # Only the first to notice drains the pool: newer connections may lead to another server.
        if drain_pool and pool is not None and self._created_at > pool._drained_at:
            pool.drain()
