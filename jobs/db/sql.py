"""Loads and runs the hot SQL statements: named blocks in a `.sql` file next to the module that calls them.

A block begins with `-- name: <name>`, unique in the project; the comment below it names the index that it uses. For the
current time use statement_timestamp(): clock_timestamp() is volatile, and Postgres never looks up a volatile value in
an index.

A statement that a connection runs often is prepared there, so that Postgres parses and plans it once. It obeys the
timeouts of its transaction or, outside of one, of its session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import TypeVar
from uuid import UUID

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
    with _client_timeout(timeout_seconds), _open_cursor(timeout_seconds) as cursor:
        _execute(cursor, name, parameters, timeout_seconds)
        count: int = cursor.rowcount
    return count


def execute_together(names: Sequence[str], parameters: Mapping[str, object]) -> int:
    """Run statements in one transaction; return the number of rows that the last one affected."""
    if len(names) == 1:
        return execute(names[0], parameters)
    with transaction.atomic():
        return [execute(name, parameters) for name in names][-1]


def fetch(
    name: str, parameters: Mapping[str, object], into: Callable[..., Row], *, timeout_seconds: float | None = None
) -> list[Row]:
    """Run a statement and return its rows, such as dataclasses; columns and arguments must have the same order."""
    with _client_timeout(timeout_seconds), _open_cursor(timeout_seconds) as cursor:
        _execute(cursor, name, parameters, timeout_seconds)
        return [into(*row) for row in cursor.fetchall()]


def fetch_ids(name: str, parameters: Mapping[str, object]) -> list[UUID]:
    """Run a statement whose only column is an id; return the ids."""
    with _open_cursor(None) as cursor:
        _execute(cursor, name, parameters, None)
        return [row_id for (row_id,) in cursor.fetchall()]


def _open_cursor(timeout_seconds: float | None) -> CursorWrapper:
    """Open a cursor that prepares statements; several statements in one round trip can only be sent as text."""
    if timeout_seconds is not None:
        return connection.cursor()
    cursor: CursorWrapper = connection.preparing_cursor()  # type: ignore[attr-defined]  # of our backend
    return cursor


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
