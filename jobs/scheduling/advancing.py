"""Computes what firing a schedule stores: executions, a dropped range, the next instant.

Unless a schedule catches up with all instants, its cost does not depend on how many have passed: dropped instants are
counted, not enumerated.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from jobs.domain import limits
from jobs.domain.recurrence import (
    CatchUp,
    Kind,
    Recurrence,
    add_jitter,
    count_instants,
    decide_catch_up,
    find_drop_cutoff,
    find_due_instants,
    find_last_instant,
    find_nth_instant,
    next_delay_instant,
)
from jobs.domain.recurrence.bounds import RESOLUTION
from jobs.domain.states import Reason, State
from jobs.execution.transitions import NewExecution
from jobs.models import DroppedRange, DropReason, Trigger

logger = logging.getLogger(__name__)

# The resolution of instants.
MAX_ERROR_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A due schedule whose row the caller has locked."""

    id: UUID
    job_id: UUID
    kind: str
    expression: str
    timezone: str
    starts_at: datetime
    ends_at: datetime | None
    jitter_seconds: float
    catch_up: str
    catch_up_window_seconds: float | None
    excluded_dates: list[date] | None  # None instead of an empty list, which costs more to read
    max_count: int | None
    settled_count: int
    next_instant: datetime
    now: datetime
    waits_for_jitter: bool = True  # False: fire before the jitter delay has passed

    @property
    def grace_seconds(self) -> float:
        return limits.CATCH_UP_GRACE_SECONDS + self.jitter_seconds


@dataclass(frozen=True, slots=True)
class Advance:
    """What firing a schedule stores: executions, dropped instants, and its next instant."""

    schedule_id: UUID
    executions: tuple[NewExecution, ...] = ()
    dropped: DroppedRange | None = None
    settled: int = 0
    next_instant: datetime | None = None
    next_fire_at: datetime | None = None
    error: str = ""

    @property
    def cost(self) -> int:
        """Return the share of a transaction's budget of instants."""
        return max(len(self.executions), 1)

    def as_row(self) -> dict[str, object]:
        """Return the shortest row for Postgres, since every firing writes and parses one."""
        row: dict[str, object] = {"id": str(self.schedule_id), "settled": self.settled}
        if self.next_instant:
            row["next_instant"] = self.next_instant.isoformat()
        if self.next_fire_at and self.next_fire_at != self.next_instant:
            row["next_fire_at"] = self.next_fire_at.isoformat()
        if self.error:
            row["error"] = self.error
        return row


@dataclass(frozen=True, slots=True)
class _DroppedPrefix:
    """The earliest due instants, which catch-up drops whatever follows them."""

    instants: Sequence[datetime]  # empty if there are many
    first: datetime
    last: datetime
    count: int
    following: datetime | None


def advance(due: DueSchedule, version_id: UUID, limit: int) -> Advance:
    """Turn at most `limit` instants into executions of the version; the rest stay due."""
    try:
        return _compute_advance(due, version_id, limit)
    except Exception as error:
        # A recurrence that cannot be computed must not fail the rest of its batch.
        logger.exception("Quarantined schedule %s: its recurrence cannot be computed", due.id)
        return quarantine(due.id, error)


def quarantine(schedule_id: UUID, error: Exception) -> Advance:
    return Advance(schedule_id, error=f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARACTERS])


def _compute_advance(due: DueSchedule, version_id: UUID, limit: int) -> Advance:
    recurrence = Recurrence.of(due, key=due.id)
    left = None if due.max_count is None else due.max_count - due.settled_count
    prefix = _find_dropped_prefix(due, recurrence, left)
    start, count = (prefix.following, prefix.count) if prefix else (due.next_instant, 0)
    if prefix:
        limit = max(limit - len(prefix.instants), 1)
    if left is not None:
        limit = min(limit, left - count)
    instants, following = find_due_instants(recurrence, start, due.now, limit) if start else ([], None)
    # Jitter delays the firing, never the instant; an instant whose delay has not passed stays due.
    instants, following = _split_at_jitter(due, instants, following)
    exhausted = left is not None and count + len(instants) >= left
    if exhausted:
        following = None
    settled = decide_catch_up(
        instants,
        now=due.now,
        more_due=following is not None and following <= due.now,
        policy=CatchUp(due.catch_up),
        window_seconds=due.catch_up_window_seconds,
        grace_seconds=due.grace_seconds,
    )
    dropped_instants = [s.instant for s in settled if not s.fires]
    dropped = _build_dropped_range(due, prefix, dropped_instants)
    if recurrence.kind is Kind.DELAY and (dropped_instants or count) and not exhausted:
        # No execution will finish and arm it again.
        following = next_delay_instant(recurrence, due.now)
    return Advance(
        schedule_id=due.id,
        executions=(
            *(
                _build_execution(due, version_id, instant, fires=False)
                for instant in (prefix.instants if prefix and not dropped else ())
            ),
            *(_build_execution(due, version_id, s.instant, fires=s.fires) for s in settled if s.fires or not dropped),
        ),
        dropped=dropped,
        settled=count + len(instants),
        next_instant=following,
        next_fire_at=following and add_jitter(due.id, following, due.jitter_seconds),
    )


def _find_dropped_prefix(due: DueSchedule, recurrence: Recurrence, left: int | None) -> _DroppedPrefix | None:
    policy, first = CatchUp(due.catch_up), due.next_instant
    cutoff = find_drop_cutoff(
        now=due.now, policy=policy, window_seconds=due.catch_up_window_seconds, grace_seconds=due.grace_seconds
    )
    if cutoff is None or first >= cutoff:
        return None
    horizon = due.now
    if left is not None:
        # The maximum count may end the schedule before now.
        horizon = find_nth_instant(recurrence, first, left, due.now) or due.now
    if policy is CatchUp.LATEST:
        newest, _ = find_last_instant(recurrence, first, horizon)
        window = due.catch_up_window_seconds
        if newest < cutoff and (window is None or (due.now - newest).total_seconds() <= window):
            cutoff = newest
    if first >= cutoff:
        return None
    until = min(cutoff - RESOLUTION, horizon)
    instants, following = find_due_instants(recurrence, first, until, limits.MAX_MISSED_ROWS + 1)
    if len(instants) <= limits.MAX_MISSED_ROWS:
        return _DroppedPrefix(instants, first, instants[-1], len(instants), following)
    last, following = find_last_instant(recurrence, first, until)
    return _DroppedPrefix((), first, last, 1 + count_instants(recurrence, first, last), following)


def _build_dropped_range(
    due: DueSchedule, prefix: _DroppedPrefix | None, instants: Sequence[datetime]
) -> DroppedRange | None:
    """Return a range if the dropped instants are too many for a row each."""
    count = (prefix.count if prefix else 0) + len(instants)
    if count <= limits.MAX_MISSED_ROWS:
        return None
    return DroppedRange(
        schedule_id=due.id,
        first=prefix.first if prefix else instants[0],
        last=instants[-1] if instants or not prefix else prefix.last,
        count=count,
        reason=DropReason.CATCH_UP,
        created_at=due.now,
    )


def _build_execution(due: DueSchedule, version_id: UUID, instant: datetime, *, fires: bool) -> NewExecution:
    return NewExecution(
        due.job_id,
        Trigger.SCHEDULE,
        state=State.READY if fires else State.MISSED,
        reason=None if fires else Reason.CATCH_UP,
        schedule_id=due.id,
        scheduled_for=instant,
        version_id=version_id,
    )


def _split_at_jitter(
    due: DueSchedule, instants: list[datetime], following: datetime | None
) -> tuple[list[datetime], datetime | None]:
    if not due.jitter_seconds or not due.waits_for_jitter:
        return instants, following
    for index, instant in enumerate(instants):
        if add_jitter(due.id, instant, due.jitter_seconds) > due.now:
            return instants[:index], instant
    return instants, following
