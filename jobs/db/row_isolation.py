"""Isolation of failing rows: one bad execution does not stop the rest of its batch."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar
from uuid import UUID

from django.db import InterfaceError, OperationalError, connection, transaction

from jobs.db.transactions import CONTENTION_SQLSTATES, has_sqlstate, with_timeouts
from jobs.domain import limits

Row = TypeVar("Row")
Result = TypeVar("Result")
# Finds a failing row among 500 in three steps, each possibly with a timeout.
SPLIT_PARTS = 8
STATEMENT_TIMEOUT_SECONDS, PART_STATEMENT_TIMEOUT_SECONDS = 4.0, 1.0

logger = logging.getLogger(__name__)


class SkippedRows:
    """Rows that failed on their own, which this process skips for a minute."""

    def __init__(self) -> None:
        self._until: dict[UUID, float] = {}

    def add(self, row_id: UUID) -> None:
        self._until[row_id] = time.monotonic() + limits.FAILED_ROW_RETRY_SECONDS

    def ids(self) -> list[UUID]:
        now = time.monotonic()
        self._until = {row_id: until for row_id, until in self._until.items() if until > now}
        return list(self._until)


def apply_isolated(
    rows: Sequence[Row],
    step: Callable[[Sequence[Row]], Result],
    *,
    failed: Callable[[Row], object],
    until: float | None = None,
) -> list[Result]:
    """Apply a step to all rows in one transaction; if that fails, to ever smaller parts, down to the failing row.

    If the database itself is down, raise its error. Rows not processed by `until` (monotonic clock) are left; a failure
    extends it, so that there is always time to find the failing row.
    """
    until = time.monotonic() + limits.FINISH_PASS_SECONDS if until is None else until
    results, parts, seconds = list[Result](), deque([rows] if rows else []), STATEMENT_TIMEOUT_SECONDS
    while parts:
        part = parts.popleft()
        try:
            with transaction.atomic(), with_timeouts(statement_seconds=seconds):
                results.append(step(part))
        except Exception as error:
            if is_database_away(error):
                raise
            if seconds > PART_STATEMENT_TIMEOUT_SECONDS:
                until = max(until, time.monotonic() + limits.FINISH_BISECT_SECONDS)
                seconds = PART_STATEMENT_TIMEOUT_SECONDS
            if len(part) == 1:
                logger.exception("Skipped %s: it failed on its own; the rest of its batch continues", part[0])
                failed(part[0])
            else:
                parts.extendleft(reversed(_split(part)))
        if time.monotonic() >= until:
            break
    return results


def _split(rows: Sequence[Row]) -> list[Sequence[Row]]:
    size = -(-len(rows) // SPLIT_PARTS)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def is_database_away(error: Exception) -> bool:
    """Return whether the database itself failed, rather than a row that is bad, slow or locked."""
    return isinstance(error, OperationalError | InterfaceError) and not has_sqlstate(error, CONTENTION_SQLSTATES)


@contextmanager
def isolated(part: str) -> Iterator[None]:
    """Log the error of one part of a pass, so that the next part runs; re-raise it if the database is down."""
    try:
        yield
    except Exception:
        if connection.connection is None or connection.connection.closed:
            raise
        logger.exception("%s failed; the next pass retries it", part)
