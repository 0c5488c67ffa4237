"""Deletes history that is older than the retention: in small transactions, the oldest first, never what is unfinished.

How far it went is committed with the first deletion that it covers, so that nobody takes what was pruned for missing.
Every step starts from what is stored: killed anywhere, the next run goes on where this one stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from jobs import sql
from jobs.models import RetentionMark
from jobs.models.ids import first_id
from jobs.services import partitions
from jobs.services.database import bounded
from jobs.services.schedules import database_now

logger = logging.getLogger(__name__)

WITHIN_SECONDS = 60.0
PAGE_EXECUTIONS = 2000
BATCH_ROWS = 5000
STATEMENT_SECONDS = 20.0

_NIL = UUID(int=0)


@dataclass(frozen=True, slots=True)
class PruneResult:
    """`finished`: nothing that is old enough was left; else the next run goes on."""

    horizon: datetime
    executions: int
    dropped_ranges: int
    schedule_versions: int
    partitions: list[str]
    finished: bool


@dataclass(frozen=True, slots=True)
class _Old:
    id: UUID
    over: bool  # it ended long ago, and so did everything that it set off
    last: bool  # of its job or its schedule: the row itself stays


@dataclass(frozen=True, slots=True)
class _Step:
    pruned: int
    more: bool


def prune_history(*, retention: timedelta, within_seconds: float = WITHIN_SECONDS) -> PruneResult:
    horizon, deadline = database_now() - retention, time.monotonic() + within_seconds
    ranges, no_range_left = _repeat(_prune_ranges, horizon, deadline)
    versions, no_version_left = _repeat(_prune_versions, horizon, deadline)
    # A partition goes as a whole, once even its youngest row is old enough.
    dropped = partitions.drop_events(before=horizon.date())
    executions, no_execution_left = _repeat(_prune_page, horizon, deadline)
    return PruneResult(
        horizon, executions, ranges, versions, dropped, no_range_left and no_version_left and no_execution_left
    )


def read_pruned_before() -> datetime | None:
    """Instants before it may have lost their executions; None: nothing was ever pruned."""
    return RetentionMark.objects.values_list("pruned_before", flat=True).first()


def _repeat(step: Callable[[datetime], _Step], horizon: datetime, deadline: float) -> tuple[int, bool]:
    pruned = 0
    while time.monotonic() < deadline:
        done = step(horizon)
        pruned += done.pruned
        if not done.more:
            return pruned, True
    return pruned, False


def _prune_page(horizon: datetime) -> _Step:
    with transaction.atomic(), bounded(statement_seconds=STATEMENT_SECONDS):
        mark = _lock_mark()
        if mark is None:
            return _Step(0, more=False)
        page = _next_page(mark.cursor or _NIL, horizon)
        over = [each.id for each in page if each.over]
        gone = [each.id for each in page if each.over and not each.last]
        more = len(page) == PAGE_EXECUTIONS
        mark.cursor = page[-1].id if more else None
        if over:
            _move(mark, horizon)
            sql.execute("prune_executions", {"over": over, "gone": gone})
        mark.save()
    return _Step(len(gone), more)


def _next_page(after: UUID, horizon: datetime) -> list[_Old]:
    wanted = {"after": after, "bound": first_id(horizon), "horizon": horizon, "limit": PAGE_EXECUTIONS}
    return sql.fetch("retention_page", wanted, _Old)


def _prune_ranges(horizon: datetime) -> _Step:
    return _prune(
        horizon,
        lambda: sql.execute(
            "prune_dropped_ranges", {"bound": first_id(horizon), "horizon": horizon, "limit": BATCH_ROWS}
        ),
    )


def _prune_versions(horizon: datetime) -> _Step:
    return _prune(horizon, lambda: sql.execute("prune_schedule_versions", {"horizon": horizon, "limit": BATCH_ROWS}))


def _prune(horizon: datetime, delete: Callable[[], int]) -> _Step:
    with transaction.atomic(), bounded(statement_seconds=STATEMENT_SECONDS):
        mark = _lock_mark()
        if mark is None:
            return _Step(0, more=False)
        pruned = delete()
        if pruned:
            _move(mark, horizon)
            mark.save()
    return _Step(pruned, more=pruned == BATCH_ROWS)


def _lock_mark() -> RetentionMark | None:
    """None: another run is at work."""
    RetentionMark.objects.bulk_create([RetentionMark()], ignore_conflicts=True)
    mark = RetentionMark.objects.select_for_update(skip_locked=True).first()
    if mark is None:
        logger.info("Another run prunes the history; this one leaves it to that")
    return mark


def _move(mark: RetentionMark, horizon: datetime) -> None:
    """Never back: a longer retention brings nothing back that was deleted."""
    mark.pruned_before = max(mark.pruned_before or horizon, horizon)
