"""Deletes history past retention: in small transactions, oldest first, and never unfinished executions.

The retention mark is committed with the first deletion that it covers, so that audits do not report pruned rows as
missing. Every step starts from stored state: after a kill, the next run continues where this one stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from django.db import transaction

from jobs.db import partitions, sql
from jobs.db.clock import database_now
from jobs.db.transactions import with_timeouts
from jobs.models import RetentionMark
from jobs.models.ids import first_id

logger = logging.getLogger(__name__)

# Most of the interval between two runs: with much to delete, one run follows another.
TIME_BUDGET_SECONDS = 50.0
# A round reads every execution that stays as the last of its job, so the next one waits.
ROUND_PAUSE = timedelta(minutes=9)
PAGE_EXECUTIONS = 2000
BATCH_ROWS = 5000
STATEMENT_TIMEOUT_SECONDS = 20.0

_NIL = UUID(int=0)


@dataclass(frozen=True, slots=True)
class PruneResult:
    """What a run deleted; unless `finished`, the next run continues."""

    horizon: datetime
    executions: int
    dropped_ranges: int
    schedule_versions: int
    partitions: list[str]
    finished: bool


@dataclass(frozen=True, slots=True)
class _PageRow:
    id: UUID
    expired: bool  # finished before the horizon, and nothing unfinished depends on it
    last: bool  # the last of its job or schedule, whose row stays


@dataclass(frozen=True, slots=True)
class _StepResult:
    pruned: int
    more: bool


def prune_history(
    *, retention: timedelta, within_seconds: float = TIME_BUDGET_SECONDS, pause: timedelta = timedelta()
) -> PruneResult:
    """Prune within this time. `pause`: leave executions alone for so long after a whole round."""
    horizon, deadline = database_now() - retention, time.monotonic() + within_seconds
    ranges, no_range_left = _run_until_done(partial(_prune_batch, "prune_dropped_ranges"), horizon, deadline)
    versions, no_version_left = _run_until_done(partial(_prune_batch, "prune_schedule_versions"), horizon, deadline)
    # A partition is dropped as a whole, once its youngest row has expired.
    dropped = partitions.drop_event_partitions(before=horizon.date())
    executions, no_execution_left = _run_until_done(partial(_prune_page, pause=pause), horizon, deadline)
    return PruneResult(
        horizon, executions, ranges, versions, dropped, no_range_left and no_version_left and no_execution_left
    )


def _run_until_done(step: Callable[[datetime], _StepResult], horizon: datetime, deadline: float) -> tuple[int, bool]:
    pruned = 0
    while time.monotonic() < deadline:
        result = step(horizon)
        pruned += result.pruned
        if not result.more:
            return pruned, True
    return pruned, False


def _prune_page(horizon: datetime, *, pause: timedelta = timedelta()) -> _StepResult:
    with transaction.atomic(), with_timeouts(statement_seconds=STATEMENT_TIMEOUT_SECONDS):
        mark = _lock_mark()
        if mark is None or _is_pausing(mark, pause):
            return _StepResult(0, more=False)
        page = _read_page(mark.cursor or _NIL, horizon)
        expired = [row.id for row in page if row.expired]
        deleted = [row.id for row in page if row.expired and not row.last]
        more = len(page) == PAGE_EXECUTIONS
        mark.cursor = page[-1].id if more else None
        mark.round_ended_at = None if more else database_now()
        if expired:
            _advance_mark(mark, horizon)
            sql.execute("prune_executions", {"expired": expired, "deleted": deleted})
        mark.save()
    return _StepResult(len(deleted), more)


def _is_pausing(mark: RetentionMark, pause: timedelta) -> bool:
    return mark.round_ended_at is not None and mark.round_ended_at > database_now() - pause


def _read_page(after: UUID, horizon: datetime) -> list[_PageRow]:
    parameters = {"after": after, "bound": first_id(horizon), "horizon": horizon, "limit": PAGE_EXECUTIONS}
    return sql.fetch("read_retention_page", parameters, _PageRow)


def _prune_batch(statement: str, horizon: datetime) -> _StepResult:
    with transaction.atomic(), with_timeouts(statement_seconds=STATEMENT_TIMEOUT_SECONDS):
        mark = _lock_mark()
        if mark is None:
            return _StepResult(0, more=False)
        pruned = sql.execute(statement, {"bound": first_id(horizon), "horizon": horizon, "limit": BATCH_ROWS})
        if pruned:
            _advance_mark(mark, horizon)
            mark.save()
    return _StepResult(pruned, more=pruned == BATCH_ROWS)


def _lock_mark() -> RetentionMark | None:
    """Lock the retention mark; None: another run holds it."""
    RetentionMark.objects.bulk_create([RetentionMark()], ignore_conflicts=True)
    mark = RetentionMark.objects.select_for_update(skip_locked=True).first()
    if mark is None:
        logger.info("Pruning is already in progress; skipping")
    return mark


def _advance_mark(mark: RetentionMark, horizon: datetime) -> None:
    """Advance the mark, never backwards: a longer retention does not restore deleted history."""
    mark.pruned_before = max(mark.pruned_before or horizon, horizon)
