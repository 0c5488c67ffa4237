"""Loads and runs the hot SQL statements: named blocks in a `.sql` file next to the module that calls them.

A block begins with `-- name: <name>`, unique in the project; the comment below it names the index that it uses. For the
current time use statement_timestamp(): clock_timestamp() is volatile, and Postgres never looks up a volatile value in
an index.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import psycopg
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from jobs.db.read_timeout import TIMEOUT_GRACE_SECONDS, limit_read_time

Row = TypeVar("Row")
PACKAGES = Path(__file__).parents[1]
BLOCK = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
COMMENT_LINE = re.compile(r"^\s*--.*\n", re.MULTILINE)
LOCK_TIMEOUT_SECONDS = 5.0


def statement(name: str) -> str:
    """Return a block's text with its name as the first comment, for pg_stat_activity."""
    return _all_statements()[name]


@cache
def _all_statements() -> Mapping[str, str]:
    statements: dict[str, str] = {}
    for path in sorted(PACKAGES.rglob("*.sql")):
        # Text before the first block is a comment about the whole file.
        _, *parts = BLOCK.split(path.read_text(encoding="utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in statements:
                raise ValueError(f"{path} repeats the statement name {name!r}.")
            statements[name] = f"/* {name} */\n{COMMENT_LINE.sub('', text).strip()}"
    return statements


def execute(name: str, parameters: Mapping[str, object], *, timeout_seconds: float | None = None) -> int:
    """Run a statement and return the number of affected rows."""
    with _client_timeout(timeout_seconds), connection.cursor() as cursor:
        _execute(cursor, name, parameters, timeout_seconds)
        count: int = cursor.rowcount
    return count


def execute_batch(names: Sequence[str], parameters: Mapping[str, object], *, timeout_seconds: float) -> int:
    """Run statements as one transaction in one round trip; return the number of rows that the last one affected."""
    with _client_timeout(timeout_seconds), connection.cursor() as cursor:
        cursor.execute(_timeout_settings(timeout_seconds) + ";\n".join(map(statement, names)), parameters)  # type: ignore[arg-type]
        for _ in range(len(names) + 1):
            cursor.nextset()
        count: int = cursor.rowcount
    return count


def execute_large_batch(names: Sequence[str], parameters: Mapping[str, object], *, timeout_seconds: float) -> int:
    """Like `execute_batch`, in more round trips: sends megabytes as parameters instead of as literals."""
    wrap_errors = connection.wrap_database_errors
    with (
        _client_timeout(timeout_seconds),
        transaction.atomic(),
        wrap_errors,
        psycopg.Cursor(connection.connection) as cursor,
    ):
        cursor.execute(_timeout_settings(timeout_seconds))
        for name in names:
            cursor.execute(statement(name), parameters)
        count: int = cursor.rowcount
    return count


def fetch(
    name: str, parameters: Mapping[str, object], into: type[Row], *, timeout_seconds: float | None = None
) -> list[Row]:
    """Run a statement and return its rows as dataclasses; columns and fields must have the same order."""
    with _client_timeout(timeout_seconds), connection.cursor() as cursor:
        _execute(cursor, name, parameters, timeout_seconds)
        return [into(*row) for row in cursor.fetchall()]


def fetch_ids(name: str, parameters: Mapping[str, object]) -> list[UUID]:
    """Run a statement whose only column is an id; return the ids."""
    with connection.cursor() as cursor:
        _execute(cursor, name, parameters, None)
        return [row_id for (row_id,) in cursor.fetchall()]


def _execute(cursor: CursorWrapper, name: str, parameters: Mapping[str, object], timeout_seconds: float | None) -> None:
    """Run a statement; with `timeout_seconds`, as a transaction of its own with these timeouts, in one round trip.

    Statements sent as one query are one transaction, and each obeys the timeouts set before it.
    """
    if timeout_seconds is None:
        cursor.execute(statement(name), parameters)  # type: ignore[arg-type]  # lists are arrays to psycopg
        return
    cursor.execute(_timeout_settings(timeout_seconds) + statement(name), parameters)  # type: ignore[arg-type]
    cursor.nextset()
    cursor.nextset()


def _client_timeout(timeout_seconds: float | None) -> AbstractContextManager[None]:
    return nullcontext() if timeout_seconds is None else limit_read_time(timeout_seconds + TIMEOUT_GRACE_SECONDS)


def _timeout_settings(seconds: float) -> str:
    return (
        f"SET LOCAL statement_timeout = {seconds * 1000:.0f};"
        f" SET LOCAL lock_timeout = {LOCK_TIMEOUT_SECONDS * 1000:.0f};\n"
    )
