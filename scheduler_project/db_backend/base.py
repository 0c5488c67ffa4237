"""Django's Postgres backend with cheaper connection checks, faster timestamps and bounded migrations.

Django checks each connection that it takes from the pool with a round trip, and a worker takes one for every report.
This backend polls the socket instead: a server that ends or crashes closes its sockets, so there is something to read
on a connection that sent nothing. TCP timeouts find a server that vanishes silently.

A migration that cannot get a lock soon gives up, because all other users of the table would queue behind it. Once it
has the lock, it may take as long as it needs.
"""

from __future__ import annotations

import select
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from types import TracebackType
from typing import Any, Self

from django.db.backends.postgresql.base import ServerBindingCursor
from django.db.backends.postgresql.operations import DatabaseOperations
from django.db.backends.postgresql.schema import DatabaseSchemaEditor
from django.db.backends.utils import CursorWrapper
from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg_pool import PoolTimeout

from jobs.db.read_timeout import without_read_timeout
from scheduler_project.db_backend.pool_shares import PoolShareWrapper

DISABLED_TIMEOUTS = ("statement_timeout", "idle_in_transaction_session_timeout")
MIGRATION_LOCK_TIMEOUT_SECONDS = 2.0


class LockTimeoutSchemaEditor(DatabaseSchemaEditor):
    """Schema editor with a lock timeout; a migration outside a transaction sets its own."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._ends = ExitStack()
        if self.collect_sql:
            return self
        self._ends.enter_context(without_read_timeout())
        local = "LOCAL " if self.atomic_migration else ""
        for name in DISABLED_TIMEOUTS:
            self.execute(f"SET {local}{name} = 0")
            if not local:
                self._ends.callback(self._reset, name)
        if local:
            self.execute(f"SET LOCAL lock_timeout = {MIGRATION_LOCK_TIMEOUT_SECONDS * 1000:.0f}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._ends:
            super().__exit__(kind, error, trace)

    def _reset(self, name: str) -> None:
        if not self.connection.connection.closed:
            self.execute(f"RESET {name}")


class TimestampLoader(Loader):
    """Load a timestamptz in a tenth of the time of Django's loader; a page of a list has hundreds.

    Only for connections in UTC, which all timestamps then have; other connections keep Django's loader.
    """

    timezone = UTC

    def load(self, data: Buffer) -> datetime:
        return datetime.fromisoformat(bytes(data).decode())


@cache
def with_fast_timestamps(adapters: AdaptersMap) -> AdaptersMap:
    own = AdaptersMap(adapters)
    own.register_loader("timestamptz", TimestampLoader)
    return own


class PreparedStatementOperations(DatabaseOperations):
    def last_executed_query(self, cursor: Any, sql: Any, params: Any) -> Any:
        """Compose the text for Django's log of queries: psycopg does not keep that of a prepared statement."""
        if isinstance(cursor, ServerBindingCursor):
            return self.compose_sql(sql, params)
        return super().last_executed_query(cursor, sql, params)


class DatabaseWrapper(PoolShareWrapper):
    SchemaEditorClass = LockTimeoutSchemaEditor
    ops_class = PreparedStatementOperations

    def get_connection_params(self) -> dict[str, Any]:
        parameters: dict[str, Any] = super().get_connection_params()
        if self.timezone == UTC:
            parameters["context"] = with_fast_timestamps(parameters["context"])
        return parameters

    def get_new_connection(self, conn_params: dict[str, Any]) -> Connection[Any]:
        connection = self._take(conn_params)
        pool = self.pool
        # Each dead connection makes the pool open a new one; the timeout of the pool bounds the loop.
        while pool is not None and has_pending_input(connection):
            connection.close()
            pool.putconn(connection)
            connection = self._take(conn_params)
        return connection

    def preparing_cursor(self) -> CursorWrapper:
        """Open a cursor that sends parameters apart from the statement, so that psycopg can prepare it."""
        self.ensure_connection()
        with self.wrap_database_errors:
            cursor = ServerBindingCursor(self.connection)  # type: ignore[call-arg]  # the stubs miss its base
            wrapped: CursorWrapper = self._prepare_cursor(cursor)  # type: ignore[attr-defined]  # likewise
        return wrapped

    def _take(self, conn_params: dict[str, Any]) -> Connection[Any]:
        try:
            connection: Connection[Any] = super().get_new_connection(conn_params)
        except PoolTimeout as error:
            cause = self.pool.connection_class.last_failure
            raise PoolTimeout(f"No connection to the database: {cause}" if cause else str(error)) from error
        return connection


def has_pending_input(connection: Connection[Any]) -> bool:
    """Check whether an idle connection has input, which nearly always means that the server closed it."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
