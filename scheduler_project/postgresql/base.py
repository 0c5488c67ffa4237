"""Django's backend for Postgres, whose pooled connections are looked at before use instead of being asked.

A migration that cannot have a lock soon gives up: whoever needs the table would wait behind it for as long.

Django's own check is a round trip for every connection that is taken from the pool, and a worker takes one for every
sentence it says. A server that ends, or falls, closes its sockets: then there is something to read on a connection that
asked for nothing. What vanished without a word is left to the time-outs of TCP.
"""

from __future__ import annotations

import select
from datetime import UTC, datetime
from functools import cache
from typing import Any, Self

from django.db.backends.postgresql import base
from django.db.backends.postgresql.schema import DatabaseSchemaEditor
from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader

LOCK_SECONDS = 2.0


class BoundedSchemaEditor(DatabaseSchemaEditor):
    """Migrations that are no transaction bound their statements themselves."""

    def __enter__(self) -> Self:
        super().__enter__()
        if self.atomic_migration and not self.collect_sql:
            self.execute(f"SET LOCAL lock_timeout = {LOCK_SECONDS * 1000:.0f}")
        return self


class InstantLoader(Loader):
    """Django's own spends ten times as long on a timestamp, and there are hundreds of them on a page of a list.

    Only for connections in UTC, of which every one is written so; of others Django takes its own.
    """

    timezone = UTC

    def load(self, data: Buffer) -> datetime:
        return datetime.fromisoformat(bytes(data).decode())


@cache
def with_quick_instants(adapters: AdaptersMap) -> AdaptersMap:
    own = AdaptersMap(adapters)
    own.register_loader("timestamptz", InstantLoader)
    return own


class DatabaseWrapper(base.DatabaseWrapper):
    SchemaEditorClass = BoundedSchemaEditor

    def get_connection_params(self) -> dict[str, Any]:
        parameters: dict[str, Any] = super().get_connection_params()
        if self.timezone == UTC:
            parameters["context"] = with_quick_instants(parameters["context"])
        return parameters

    def get_new_connection(self, conn_params: dict[str, Any]) -> Connection[Any]:
        connection: Connection[Any] = super().get_new_connection(conn_params)
        pool = self.pool
        # Each dead one makes room for a new one, which was alive a moment ago; getting it is bounded by the pool.
        while pool is not None and has_news(connection):
            connection.close()
            pool.putconn(connection)
            connection = super().get_new_connection(conn_params)
        return connection


def has_news(connection: Connection[Any]) -> bool:
    """Whether an idle connection has something to say: in nearly all cases, that it is over."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
