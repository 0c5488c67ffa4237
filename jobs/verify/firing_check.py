"""Compares the recomputed instants of a schedule with its records: a merge of two sorted sequences.

Every due instant must be covered exactly once, by an execution or by a dropped range; every execution and dropped
instant must have been due. Anything else is a difference. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from jobs.domain.recurrence import Kind, Recurrence, add_jitter, count_instants, instants_between
from jobs.domain.recurrence.bounds import RESOLUTION
from jobs.domain.states import State
from jobs.verify.report import DifferenceKind, Tally

_NEVER = datetime.max.replace(tzinfo=UTC)
CHECK_EVERY_INSTANTS = 1000
_DID_NOT_FIRE = (State.MISSED.value, State.SKIPPED.value)


class FiredExecution(NamedTuple):
    """An execution, ordered by schedule and instant; ids stay text, which sorts the same and is cheaper."""

    schedule_id: str
    instant: datetime
    id: str
    state: str
    fired_at: datetime
    by_schedule: bool  # otherwise requested for this instant by a user


@dataclass(frozen=True, slots=True)
class DroppedInstants:
    schedule_id: UUID
    first: datetime
    last: datetime
    count: int


@dataclass(frozen=True, slots=True)
class RecordedVersion:
    """The schedule's definition for the instants in (from_at, to_at]."""

    from_at: datetime
    to_at: datetime | None
    paused: bool
    recurrence: Recurrence
    jitter_seconds: float
    max_count: int | None
    settled_before: int | None = None  # instants of the versions before it; None: unknown

    @property
    def until(self) -> datetime:
        return self.to_at or _NEVER


@dataclass(frozen=True, slots=True)
class RecordedSchedule:
    """A schedule with its history; instants before `settled_before` (None: all) must be covered."""

    id: UUID
    settled_before: datetime | None
    quarantined: bool
    versions: Sequence[RecordedVersion]
    dropped: Sequence[DroppedInstants]


@dataclass(frozen=True, slots=True)
class AuditWindow:
    """The instants from `from_` to `to`, both included; those due after `overdue_after` may still fire."""

    from_: datetime
    to: datetime
    now: datetime
    overdue_after: datetime


class ExecutionStream:
    """The executions of many schedules, with a lookahead of one."""

    def __init__(self, rows: Iterator[FiredExecution]) -> None:
        self._rows = rows
        self.head = next(rows, None)

    def take(self) -> None:
        self.head = next(self._rows, None)

    def of(self, schedule_id: str, until: datetime) -> Iterator[FiredExecution]:
        """Consume those of a schedule up to and including `until`, skipping the rest of earlier schedules."""
        while (head := self.head) is not None and head.schedule_id < schedule_id:
            self.take()
        while (head := self.head) is not None and head.schedule_id == schedule_id and head.instant <= until:
            self.take()
            yield head


class ScheduleChecker:
    """Checks one schedule and adds the findings to the tally."""

    def __init__(
        self,
        schedule: RecordedSchedule,
        window: AuditWindow,
        stream: ExecutionStream,
        tally: Tally,
        check_deadline: Callable[[], None],
    ) -> None:
        """`check_deadline` is called every `CHECK_EVERY_INSTANTS` and may raise: a schedule can have millions."""
        self._schedule = schedule
        self._check_deadline = check_deadline
        self._key = str(schedule.id)
        self._window = window
        self._stream = stream
        self._tally = tally
        self._until = min(window.to, window.now)
        self._ranges = _group_by_version(schedule)

    def run(self) -> None:
        counted = 0
        for stray in self._ranges.get(None, ()):
            self._add_difference(stray.first, DifferenceKind.EXTRA, stray.count)
        for version in self._schedule.versions:
            after = max(version.from_at, self._window.from_ - RESOLUTION)
            until = min(version.until, self._until)
            remaining = None
            counted = counted if version.settled_before is None else version.settled_before
            if version.max_count is not None:
                counted += self._count(version, version.from_at, min(version.until, after), version.max_count - counted)
                remaining = version.max_count - counted
            if after < until:
                counted += self._check_version(version, after, until, remaining)
        self._take_extra(_NEVER)

    def _check_version(self, version: RecordedVersion, after: datetime, until: datetime, remaining: int | None) -> int:
        """Check the instants of a version and return their number."""
        self._take_extra(after)
        if version.recurrence.kind is Kind.DELAY:
            return self._check_delay(version, until)
        if version.paused:
            return self._check_pause(version, after, until, remaining)
        return self._check_active(version, after, until, remaining)

    def _check_delay(self, version: RecordedVersion, until: datetime) -> int:
        """Count a fixed delay's executions: its instants depend on when runs finished and cannot be recomputed."""
        count, previous = 0, None
        for fired in self._stream.of(self._key, until):
            if fired.instant == previous:
                self._add_difference(fired.instant, DifferenceKind.DUPLICATE)
                continue
            previous = fired.instant
            count += 1
            self._account(version, fired)
        return count

    def _check_pause(self, version: RecordedVersion, after: datetime, until: datetime, remaining: int | None) -> int:
        """Check a pause: nothing fires, and its end records its instants as dropped."""
        self._take_extra(until)
        if version.to_at is None:
            return 0
        count = self._count(version, after, until, remaining)
        unexplained, limit = count, remaining
        for dropped in self._ranges.get(version.from_at, ()):
            low, high = max(after, dropped.first - RESOLUTION), min(until, dropped.last)
            within = self._count(version, low, high, limit)
            limit = None if limit is None else limit - within
            self._drop(dropped, within)
            unexplained -= within
        if unexplained > 0:
            self._add_difference(version.recurrence.next_after(after), DifferenceKind.ABSENT, unexplained)
        return count

    def _check_active(self, version: RecordedVersion, after: datetime, until: datetime, remaining: int | None) -> int:
        recurrence, stream, schedule_id = version.recurrence, self._stream, self._key
        ranges = iter(self._ranges.get(version.from_at, ()))
        dropped = next(ranges, None)
        count = 0
        instant = recurrence.next_after(after)
        while instant is not None and instant <= until and (remaining is None or count < remaining):
            while dropped is not None and dropped.last < instant:
                self._drop(dropped, 0)
                dropped = next(ranges, None)
            head = stream.head
            if dropped is not None and dropped.first <= instant:
                last = min(dropped.last, until)
                within = self._count(
                    version, instant - RESOLUTION, last, None if remaining is None else remaining - count
                )
                self._take_extra(instant - RESOLUTION)
                self._take_duplicates(version, last)
                self._drop(dropped, within)
                dropped = next(ranges, None)
                count += within
                instant = recurrence.next_after(last)
                continue
            if head is None or head.instant != instant or head.schedule_id != schedule_id:
                self._take_extra(instant - RESOLUTION)
                head = stream.head
            if head is not None and head.instant == instant and head.schedule_id == schedule_id:
                stream.take()
                self._account(version, head)
                head = stream.head
                if head is not None and head.instant == instant and head.schedule_id == schedule_id:
                    for fired in stream.of(schedule_id, instant):
                        self._add_difference(fired.instant, DifferenceKind.DUPLICATE)
            else:
                self._account_absent(version, instant)
            count += 1
            if not count % CHECK_EVERY_INSTANTS:
                self._check_deadline()
            instant = recurrence.next_after(instant)
        while dropped is not None:
            self._drop(dropped, 0)
            dropped = next(ranges, None)
        self._take_extra(until)
        return count

    def _account(self, version: RecordedVersion, fired: FiredExecution) -> None:
        tally = self._tally
        tally.states[fired.state] += 1
        if fired.state in _DID_NOT_FIRE or not fired.by_schedule:
            return
        due = self._due(version, fired.instant)
        if fired.fired_at < due:
            self._add_difference(fired.instant, DifferenceKind.EARLY)
        tally.add_lateness(fired.fired_at - due)

    def _account_absent(self, version: RecordedVersion, instant: datetime) -> None:
        settled = self._schedule.settled_before
        closed = version.to_at is not None and not self._schedule.quarantined
        if closed or settled is None or instant < settled:
            self._add_difference(instant, DifferenceKind.ABSENT)
        elif not self._schedule.quarantined and self._due(version, instant) < self._window.overdue_after:
            self._add_difference(instant, DifferenceKind.OVERDUE)

    def _due(self, version: RecordedVersion, instant: datetime) -> datetime:
        """Return when an instant fires: with jitter, unless its version ends before."""
        if not version.jitter_seconds:
            return instant
        fires_at = add_jitter(self._schedule.id, instant, version.jitter_seconds)
        return fires_at if fires_at <= version.until else instant

    def _drop(self, dropped: DroppedInstants, due: int) -> None:
        """Account for a dropped range in which `due` instants were due."""
        whole = self._window.from_ <= dropped.first and dropped.last <= self._until
        explained = min(due, dropped.count) if whole else due
        self._tally.dropped += explained
        if due > explained:
            self._add_difference(dropped.first, DifferenceKind.ABSENT, due - explained)
        if whole and dropped.count > due:
            self._add_difference(dropped.first, DifferenceKind.EXTRA, dropped.count - due)

    def _take_extra(self, until: datetime) -> None:
        head = self._stream.head
        if head is None or (head.schedule_id == self._key and head.instant > until):
            return
        for fired in self._stream.of(self._key, until):
            if fired.by_schedule:
                self._add_difference(
                    fired.instant, DifferenceKind.EARLY if fired.instant > self._window.now else DifferenceKind.EXTRA
                )

    def _take_duplicates(self, version: RecordedVersion, until: datetime) -> None:
        """Report executions inside a dropped range: duplicates of a dropped instant, or extra."""
        for fired in self._stream.of(self._key, until):
            if fired.by_schedule:
                is_instant = version.recurrence.next_after(fired.instant - RESOLUTION) == fired.instant
                self._add_difference(fired.instant, DifferenceKind.DUPLICATE if is_instant else DifferenceKind.EXTRA)

    def _count(self, version: RecordedVersion, after: datetime, until: datetime, most: int | None) -> int:
        if version.recurrence.kind is Kind.DELAY or until <= after or (version.paused and version.to_at is None):
            return 0
        if version.recurrence.kind is Kind.EVERY:
            count = count_instants(version.recurrence, after, until)
            return count if most is None else min(count, max(most, 0))
        found = instants_between(version.recurrence, after, until)
        count = 0
        for _ in found if most is None else islice(found, max(most, 0)):
            count += 1
            if not count % CHECK_EVERY_INSTANTS:
                self._check_deadline()
        return count

    def _add_difference(self, instant: datetime | None, what: DifferenceKind, count: int = 1) -> None:
        self._tally.add_difference(self._schedule.id, instant, what, count)


def _group_by_version(schedule: RecordedSchedule) -> dict[datetime | None, list[DroppedInstants]]:
    """Group the dropped ranges by the start of the version in which they begin; None: in no version."""
    ranges: dict[datetime | None, list[DroppedInstants]] = {}
    versions = iter(schedule.versions)
    version = next(versions, None)
    for dropped in schedule.dropped:
        while version is not None and version.until < dropped.first:
            version = next(versions, None)
        start = version.from_at if version is not None and version.from_at < dropped.first else None
        ranges.setdefault(start, []).append(dropped)
    return ranges
