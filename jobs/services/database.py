"""Bounds on what a transaction may wait for; SET LOCAL, so that a pooler between us and Postgres does not mind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import InternalError, connection, transaction
from psycopg import errors

BATCH_ROWS = 1000
MOST_BATCHES = 100
UNHURRIED_COMMIT = ", set_config('synchronous_commit', 'off', true)"
# A primary that was demoted answers, and writes nothing; a server that ended our transaction does not know it any more.
CLOSED_TO_US = {
    errors.ReadOnlySqlTransaction.sqlstate,
    errors.IdleInTransactionSessionTimeout.sqlstate,
    errors.TransactionTimeout.sqlstate,
}
TRY_LOCK = ", pg_try_advisory_xact_lock(hashtextextended(%s, 0))"


@contextmanager
def bounded(
    *, statement_seconds: float, lock_seconds: float = 5, durable: bool = True, only_with: str | None = None
) -> Iterator[bool]:
    """To be entered first inside a transaction: a slow or stuck database ends it with an error instead of hanging.

    Not `durable`: its commit does not wait for the disk. Only for what a crash may undo because nothing that waits for
    the disk can stand on it without being written after it.

    `only_with`: the name of an advisory lock, tried in the same round trip: that statement reads no table.
    False if somebody else has it.
    """
    values = [f"{int(value * 1000)}ms" for value in (statement_seconds, lock_seconds, statement_seconds * 3)]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true),"
            " set_config('idle_in_transaction_session_timeout', %s, true)"
            + ("" if durable else UNHURRIED_COMMIT)
            + (", true" if only_with is None else TRY_LOCK),
            values if only_with is None else [*values, only_with],
        )
        ours = bool(cursor.fetchone()[-1])
    yield ours


def delete_in_batches(delete: Callable[[int], int]) -> int:
    """Calls it with how many it may delete, in small transactions; what is left after many is for the next run."""
    deleted = 0
    for _ in range(MOST_BATCHES):
        with transaction.atomic(), bounded(statement_seconds=10):
            gone = delete(BATCH_ROWS)
        deleted += gone
        if gone < BATCH_ROWS:
            break
    return deleted


@contextmanager
def pooled() -> Iterator[None]:
    """Gives the connection back to the pool afterwards: a thread that waits for something else must not hold one."""
    try:
        yield
    finally:
        connection.close()


def give_back() -> None:
    """Between two statements of something that takes its time; what has begun a transaction keeps its connection."""
    if not connection.in_atomic_block:
        connection.close()


def abandon_if_closed_to_us(error: InternalError) -> bool:
    """A connection whose server takes nothing any more leads to no other server, so it does not go back to the pool.

    False: the error is another one.
    """
    if getattr(error.__cause__, "sqlstate", None) not in CLOSED_TO_US:
        return False
    if connection.connection is not None:
        connection.connection.close()
    return True
