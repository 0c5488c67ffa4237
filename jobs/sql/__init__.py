"""Hot statements, one to a file; each file's header names its caller and the index it stands on.

Comparisons with the present use statement_timestamp(): clock_timestamp() is volatile, and Postgres will not look a
volatile value up in an index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import psycopg
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

Row = TypeVar("Row")
HERE = Path(__file__).parent
LOCK_SECONDS = 5.0


@cache
def statement(name: str) -> str:
    return (HERE / f"{name}.sql").read_text(encoding="utf-8")


def execute(name: str, parameters: Mapping[str, object], *, within: float | None = None) -> int:
    """Runs a statement and returns how many rows it touched."""
    with connection.cursor() as cursor:
        _run(cursor, name, parameters, within)
        count: int = cursor.rowcount
    return count


def execute_together(names: Sequence[str], parameters: Mapping[str, object], *, within: float) -> int:
    """Runs several as one transaction in one round trip, and returns how many rows the last touched."""
    with connection.cursor() as cursor:
        cursor.execute(_bounds(within) + ";\n".join(map(statement, names)), parameters)  # type: ignore[arg-type]
        for _ in range(len(names) + 1):
            cursor.nextset()
        count: int = cursor.rowcount
    return count


def execute_large(names: Sequence[str], parameters: Mapping[str, object], *, within: float) -> int:
    """As `execute_together`, in more round trips, for megabytes: they are sent as they are, not as part of the text."""
    with transaction.atomic(), connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(_bounds(within))
        for name in names:
            cursor.execute(statement(name), parameters)
        count: int = cursor.rowcount
    return count


def fetch(name: str, parameters: Mapping[str, object], into: type[Row], *, within: float | None = None) -> list[Row]:
    """Runs a statement and returns each row as a dataclass; columns and fields have the same order."""
    with connection.cursor() as cursor:
        _run(cursor, name, parameters, within)
        return [into(*row) for row in cursor.fetchall()]


def _run(cursor: CursorWrapper, name: str, parameters: Mapping[str, object], within: float | None) -> None:
    """`within` so many seconds: for a statement that is a transaction of its own, bounds and all in one round trip.

    What is sent as one query is one transaction, committed when it is answered, and each part has the bounds that were
    set before it.
    """
    if within is None:
        cursor.execute(statement(name), parameters)  # type: ignore[arg-type]  # lists are arrays to psycopg
        return
    cursor.execute(_bounds(within) + statement(name), parameters)  # type: ignore[arg-type]
    cursor.nextset()
    cursor.nextset()


def _bounds(seconds: float) -> str:
    return f"SET LOCAL statement_timeout = {seconds * 1000:.0f}; SET LOCAL lock_timeout = {LOCK_SECONDS * 1000:.0f};\n"
