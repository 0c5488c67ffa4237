"""Audit of firings: recomputes every due instant from the schedules' history and compares it with the records.

Read-only. Each batch of schedules is read in one snapshot, so that concurrent firing is no difference, and in pages, so
that memory does not grow with the range.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from uuid import UUID

from django.db import connection, transaction

from jobs.db import sql
from jobs.db.clock import read_pruned_before
from jobs.db.transactions import with_timeouts
from jobs.domain.errors import InvalidInput
from jobs.domain.recurrence import Recurrence
from jobs.execution.delays import read_idle_delays
from jobs.verify.firing_check import (
    AuditWindow,
    DroppedInstants,
    ExecutionStream,
    FiredExecution,
    RecordedSchedule,
    RecordedVersion,
    ScheduleChecker,
)
from jobs.verify.report import DifferenceKind, FiringAudit, Tally, format_instant

logger = logging.getLogger(__name__)

# A beat that is late by at most this much has not failed.
TOLERANCE_SECONDS = 10.0
MAX_EXAMPLES = 20
BATCH_SCHEDULES = 200
PAGE_EXECUTIONS = 10_000
STATEMENT_TIMEOUT_SECONDS = 60.0

_NIL = UUID(int=0)
UNCOMPUTABLE_ERRORS = (ArithmeticError, LookupError, ValueError, InvalidInput)


@dataclass(frozen=True, slots=True)
class _ScheduleRow:
    id: UUID
    next_instant: datetime | None
    quarantined: bool
    last_settled: datetime | None
    now: datetime


@dataclass(frozen=True, slots=True)
class _VersionRow:
    schedule_id: UUID
    from_at: datetime
    to_at: datetime | None
    paused: bool
    kind: str
    expression: str
    timezone: str
    starts_at: datetime
    ends_at: datetime | None
    excluded_dates: list[date]
    jitter_seconds: float
    max_count: int | None
    settled_before: int | None


def audit_firings(
    from_: datetime,
    to: datetime,
    *,
    owner_id: int | None = None,
    job_id: UUID | None = None,
    tolerance_seconds: float = TOLERANCE_SECONDS,
    examples: int = MAX_EXAMPLES,
    within_seconds: float | None = None,
) -> FiringAudit:
    """Audit the instants from `from_` to `to` of the schedules of one owner or job, or of all.

    Pruned history is skipped. An audit that takes longer than `within_seconds` raises AuditTimedOut.
    """
    if from_ > to:
        raise InvalidInput("from", "The range to audit ends before it begins; swap its ends.")
    deadline = None if within_seconds is None else time.monotonic() + within_seconds
    tally = Tally(examples)
    after: UUID | None = _NIL
    pruned_before: datetime | None = None
    while after is not None:
        with read_snapshot(
            statement_seconds=min(within_seconds or STATEMENT_TIMEOUT_SECONDS, STATEMENT_TIMEOUT_SECONDS)
        ):
            # Read again in each snapshot: retention may run between two of them.
            pruned_before = read_pruned_before()
            from_ = skip_pruned(from_, pruned_before, to)
            schedules = _read_batch(after, owner_id, job_id)
            if schedules:
                window = AuditWindow(
                    from_, to, schedules[0].now, schedules[0].now - timedelta(seconds=tolerance_seconds)
                )
                _audit_batch(schedules, window, tally, deadline)
            after = schedules[-1].id if len(schedules) == BATCH_SCHEDULES else None
    return tally.audit(from_, to, pruned_before)


def skip_pruned(from_: datetime, pruned_before: datetime | None, to: datetime) -> datetime:
    if pruned_before is None or pruned_before <= from_:
        return from_
    if pruned_before > to:
        raise InvalidInput(
            "to",
            f"History before {format_instant(pruned_before)} is pruned and cannot be audited; ask for a later range.",
        )
    return pruned_before


@contextmanager
def read_snapshot(*, statement_seconds: float) -> Iterator[None]:
    outermost = not connection.in_atomic_block
    with transaction.atomic():
        if outermost:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        with with_timeouts(statement_seconds=statement_seconds):
            yield


def _read_batch(after: UUID, owner_id: int | None, job_id: UUID | None) -> list[_ScheduleRow]:
    parameters = {"after": after, "owner_id": owner_id, "job_id": job_id, "limit": BATCH_SCHEDULES}
    return sql.fetch("audit_schedules", parameters, _ScheduleRow)


def _audit_batch(rows: Sequence[_ScheduleRow], window: AuditWindow, tally: Tally, deadline: float | None) -> None:
    ids = [row.id for row in rows]
    versions, dropped = _read_versions(ids, window), _read_dropped(ids, window)
    if window.to >= window.overdue_after:
        _audit_delays(ids, window, tally)
    stream = ExecutionStream(_read_executions(ids, window, tally, deadline))
    for row in rows:
        _check_deadline(deadline)
        tally.schedules += 1
        tally.quarantined += row.quarantined
        try:
            history = [_to_recorded_version(version) for version in versions.get(row.id, [])]
            schedule = RecordedSchedule(
                row.id, _find_settled_before(row), row.quarantined, history, dropped.get(row.id, [])
            )
            ScheduleChecker(schedule, window, stream, tally, check_deadline=lambda: _check_deadline(deadline)).run()
        except AuditTimedOut:
            raise
        except UNCOMPUTABLE_ERRORS as error:
            # Firing quarantines such a schedule, which explains its missing executions.
            logger.warning("Cannot recompute the instants of schedule %s: %s", row.id, error)
            if not row.quarantined:
                tally.add_difference(row.id, None, DifferenceKind.UNCOMPUTABLE)


def _audit_delays(ids: Sequence[UUID], window: AuditWindow, tally: Tally) -> None:
    """Report fixed delays that will never fire again; their past instants cannot be recomputed."""
    for delay in read_idle_delays(only=ids, limit=len(ids)):
        has_waited = delay.since is None or delay.since <= window.overdue_after
        try:
            unarmed = has_waited and delay.due(window.now) is not None
        except UNCOMPUTABLE_ERRORS:
            unarmed = has_waited
        if unarmed:
            tally.add_difference(delay.schedule_id, None, DifferenceKind.UNARMED)


def _find_settled_before(row: _ScheduleRow) -> datetime | None:
    if not row.quarantined:
        return row.next_instant
    return datetime.min.replace(tzinfo=row.now.tzinfo) if row.last_settled is None else row.last_settled


def _read_versions(ids: Sequence[UUID], window: AuditWindow) -> dict[UUID, list[_VersionRow]]:
    rows = sql.fetch("audit_versions", {"ids": ids, "to": window.to}, _VersionRow)
    return {schedule_id: list(group) for schedule_id, group in groupby(rows, key=lambda row: row.schedule_id)}


def _to_recorded_version(row: _VersionRow) -> RecordedVersion:
    return RecordedVersion(
        from_at=row.from_at,
        to_at=row.to_at,
        paused=row.paused,
        recurrence=Recurrence.of(row, key=row.schedule_id),
        jitter_seconds=row.jitter_seconds,
        max_count=row.max_count,
        settled_before=row.settled_before,
    )


def _read_dropped(ids: Sequence[UUID], window: AuditWindow) -> dict[UUID, list[DroppedInstants]]:
    rows = sql.fetch("audit_dropped", {"ids": ids, "from": window.from_, "to": window.to}, DroppedInstants)
    return {schedule_id: list(group) for schedule_id, group in groupby(rows, key=lambda row: row.schedule_id)}


def _read_executions(
    ids: Sequence[UUID], window: AuditWindow, tally: Tally, deadline: float | None
) -> Iterator[FiredExecution]:
    last = (str(_NIL), window.from_, str(_NIL))
    while True:
        page = sql.fetch(
            "audit_executions",
            {
                "ids": [each for each in ids if str(each) >= last[0]],
                "from": window.from_,
                "to": window.to,
                "schedule_id": last[0],
                "instant": last[1],
                "id": last[2],
                "limit": PAGE_EXECUTIONS,
            },
            FiredExecution,
        )
        tally.executions += len(page)
        yield from page
        if len(page) < PAGE_EXECUTIONS:
            return
        last = page[-1][:3]
        _check_deadline(deadline)


def _check_deadline(deadline: float | None) -> None:
    if deadline is not None and time.monotonic() > deadline:
        raise AuditTimedOut("audit_firings")


class AuditTimedOut(InvalidInput):
    """The audit takes too long for one request."""

    def __init__(self, command: str) -> None:
        super().__init__(
            "from",
            "An audit of this range takes too long for one request: ask for a shorter range or for one job,"
            f" or run manage.py {command} on the server.",
        )
