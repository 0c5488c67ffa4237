"""Recomputes every instant that was due from the schedules' history and compares it with what is stored.

It only reads. Each batch of schedules is read in one snapshot, so that a beat at work is never taken for a difference,
and in pages, so that memory does not grow with what is audited.
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

from jobs import sql
from jobs.errors import InvalidInput
from jobs.recurrence import Recurrence
from jobs.services.audit_report import Audit, Tally, What, shown
from jobs.services.audit_walking import Dropped, Fired, Scheduled, ScheduleWalk, Stream, Version, Window
from jobs.services.database import bounded
from jobs.services.retention import read_pruned_before

logger = logging.getLogger(__name__)

# A beat that is busy for this long has not failed yet.
TOLERANCE_SECONDS = 10.0
EXAMPLES = 20
BATCH_SCHEDULES = 200
PAGE_EXECUTIONS = 10_000
STATEMENT_SECONDS = 60.0

_NIL = UUID(int=0)


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
    examples: int = EXAMPLES,
    within_seconds: float | None = None,
) -> Audit:
    """Every instant from `from_` to `to`, of the schedules of one owner or job, or of all.

    What retention has pruned is not asked for: the audit begins after it. One that takes longer than `within_seconds`
    is given up.
    """
    if from_ > to:
        raise InvalidInput("from", "The range to audit ends before it begins; swap its ends.")
    deadline = None if within_seconds is None else time.monotonic() + within_seconds
    tally = Tally(examples)
    after: UUID | None = _NIL
    pruned_before: datetime | None = None
    while after is not None:
        with _snapshot(statement_seconds=min(within_seconds or STATEMENT_SECONDS, STATEMENT_SECONDS)):
            # In each snapshot anew: retention may be at work between two of them.
            pruned_before = read_pruned_before()
            from_ = _begin_after(from_, pruned_before, to)
            schedules = _next_batch(after, owner_id, job_id)
            if schedules:
                window = Window(from_, to, schedules[0].now, schedules[0].now - timedelta(seconds=tolerance_seconds))
                _audit_batch(schedules, window, tally, deadline)
            after = schedules[-1].id if len(schedules) == BATCH_SCHEDULES else None
    return tally.audit(from_, to, pruned_before)


def _begin_after(from_: datetime, pruned_before: datetime | None, to: datetime) -> datetime:
    if pruned_before is None or pruned_before <= from_:
        return from_
    if pruned_before > to:
        raise InvalidInput(
            "to", f"What was before {shown(pruned_before)} is pruned and cannot be audited; ask for a later range."
        )
    return pruned_before


@contextmanager
def _snapshot(*, statement_seconds: float) -> Iterator[None]:
    outermost = not connection.in_atomic_block
    with transaction.atomic():
        if outermost:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        with bounded(statement_seconds=statement_seconds):
            yield


def _next_batch(after: UUID, owner_id: int | None, job_id: UUID | None) -> list[_ScheduleRow]:
    wanted = {"after": after, "owner_id": owner_id, "job_id": job_id, "limit": BATCH_SCHEDULES}
    return sql.fetch("audit_schedules", wanted, _ScheduleRow)


def _audit_batch(rows: Sequence[_ScheduleRow], window: Window, tally: Tally, deadline: float | None) -> None:
    ids = [row.id for row in rows]
    versions, dropped = _versions(ids, window), _dropped(ids, window)
    stream = Stream(_executions(ids, window, tally, deadline))
    for row in rows:
        _check_deadline(deadline)
        tally.schedules += 1
        tally.quarantined += row.quarantined
        try:
            history = [_version(version) for version in versions.get(row.id, [])]
            schedule = Scheduled(row.id, _settled_before(row), row.quarantined, history, dropped.get(row.id, []))
            ScheduleWalk(schedule, window, stream, tally).run()
        except AuditTooLong:
            raise
        except (ArithmeticError, LookupError, ValueError, InvalidInput) as error:
            # Firing puts such a schedule into quarantine, which explains it; without that, nothing does.
            logger.warning("The instants of schedule %s cannot be recomputed: %s", row.id, error)
            if not row.quarantined:
                tally.differ(row.id, None, What.UNCOMPUTABLE)


def _settled_before(row: _ScheduleRow) -> datetime | None:
    if not row.quarantined:
        return row.next_instant
    return datetime.min.replace(tzinfo=row.now.tzinfo) if row.last_settled is None else row.last_settled


def _versions(ids: Sequence[UUID], window: Window) -> dict[UUID, list[_VersionRow]]:
    rows = sql.fetch("audit_versions", {"ids": ids, "to": window.to}, _VersionRow)
    return {schedule_id: list(group) for schedule_id, group in groupby(rows, key=lambda row: row.schedule_id)}


def _version(row: _VersionRow) -> Version:
    return Version(
        from_at=row.from_at,
        to_at=row.to_at,
        paused=row.paused,
        recurrence=Recurrence.of(row, key=row.schedule_id),
        jitter_seconds=row.jitter_seconds,
        max_count=row.max_count,
        settled_before=row.settled_before,
    )


def _dropped(ids: Sequence[UUID], window: Window) -> dict[UUID, list[Dropped]]:
    rows = sql.fetch("audit_dropped", {"ids": ids, "from": window.from_, "to": window.to}, Dropped)
    return {schedule_id: list(group) for schedule_id, group in groupby(rows, key=lambda row: row.schedule_id)}


def _executions(ids: Sequence[UUID], window: Window, tally: Tally, deadline: float | None) -> Iterator[Fired]:
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
            Fired,
        )
        tally.executions += len(page)
        yield from page
        if len(page) < PAGE_EXECUTIONS:
            return
        last = page[-1][:3]
        _check_deadline(deadline)


def _check_deadline(deadline: float | None) -> None:
    if deadline is not None and time.monotonic() > deadline:
        raise AuditTooLong


class AuditTooLong(InvalidInput):
    """The audit takes too long to be waited for."""

    def __init__(self) -> None:
        super().__init__(
            "from",
            "An audit of this range takes too long for one request: ask for a shorter range or for one job,"
            " or run manage.py audit_firings on the server.",
        )
