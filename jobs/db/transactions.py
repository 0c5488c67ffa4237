"""Timeouts of transactions, set with SET LOCAL so that they work through a pooler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import DatabaseError, DataError, connection, transaction

from jobs.db.read_timeout import TIMEOUT_GRACE_SECONDS, limit_read_time

BATCH_ROWS = 1000
MAX_BATCHES = 100
ASYNC_COMMIT = ", set_config('synchronous_commit', 'off', true)"
# JIT compilation takes longer than any of our statements, and the estimates that trigger it are often outdated.
NO_JIT = ", set_config('jit', 'off', true)"
NO_BITMAP_SCAN = ", set_config('enable_bitmapscan', 'off', true)"
TRY_LOCK = ", pg_try_advisory_xact_lock(hashtextextended(%s, 0))"

# Contention with another transaction: lock timeout, statement timeout, deadlock, serialization failure.
CONTENTION_SQLSTATES = ("55P03", "57014", "40")


@contextmanager
def with_timeouts(
    *,
    statement_seconds: float,
    lock_seconds: float = 5,
    durable: bool = True,
    avoid_bitmap_scans: bool = False,
    lock_name: str | None = None,
) -> Iterator[bool]:
    """Set timeouts at the start of a transaction, so that a slow, stuck or frozen database raises an error.

    `durable=False`: the commit does not wait for the disk. Only for changes that a crash may lose because every durable
    change that depends on them is written later.

    `avoid_bitmap_scans`: use plain index scans, whatever the planner's statistics of fast-changing tables suggest. They
    also mark dead entries, so that later scans skip them before the next vacuum.

    `lock_name`: try this advisory lock in the same round trip; the statement reads no table. Yields whether it is ours.
    """
    values = [f"{int(value * 1000)}ms" for value in (statement_seconds, lock_seconds, statement_seconds * 3)]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true),"
            " set_config('idle_in_transaction_session_timeout', %s, true)"
            + NO_JIT
            + ("" if durable else ASYNC_COMMIT)
            + (NO_BITMAP_SCAN if avoid_bitmap_scans else "")
            + (", true" if lock_name is None else TRY_LOCK),
            values if lock_name is None else [*values, lock_name],
        )
        acquired = bool(cursor.fetchone()[-1])
    with limit_read_time(statement_seconds + TIMEOUT_GRACE_SECONDS):
        yield acquired


def has_sqlstate(error: Exception, states: tuple[str, ...]) -> bool:
    """Return whether the error has one of these states; lost connections and refused values get a default state."""
    if not isinstance(error, DatabaseError):
        return False
    default = "22000" if isinstance(error, DataError) else "08000"
    return str(getattr(error.__cause__, "sqlstate", None) or default).startswith(states)


def delete_in_batches(delete: Callable[[int], int]) -> int:
    """Call `delete` with a row limit in small transactions until it finds no more, or MAX_BATCHES times."""
    deleted = 0
    for _ in range(MAX_BATCHES):
        with transaction.atomic(), with_timeouts(statement_seconds=10):
            count = delete(BATCH_ROWS)
        deleted += count
        if count < BATCH_ROWS:
            break
    return deleted


@contextmanager
def releasing_connection() -> Iterator[None]:
    """Return the connection to the pool afterwards: a thread that waits for something else must not hold one."""
    try:
        yield
    finally:
        connection.close()


def release_connection() -> None:
    """Return the connection to the pool between statements, unless a transaction is open."""
    if not connection.in_atomic_block:
        connection.close()
