"""Django's backend for Postgres, whose pooled connections are looked at before use instead of being asked.

Django's own check is a round trip for every connection that is taken from the pool, and a worker takes one for every
sentence it says. A server that ends, or falls, closes its sockets: then there is something to read on a connection that
asked for nothing. What vanished without a word is left to the time-outs of TCP.
"""

from __future__ import annotations

import select
from typing import Any

from django.db.backends.postgresql import base
from psycopg import Connection


class DatabaseWrapper(base.DatabaseWrapper):
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
