"""Recomputes what was due of one schedule and holds it against what is recorded: two sorted walks, side by side.

Every due instant is accounted for once, by an execution or by a dropped range, or it is a difference; so is every
execution and every dropped instant that was never due. Nothing is read or written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from jobs.recurrence import Kind, Recurrence, count_instants, instants_between, jittered
from jobs.services.audit_report import Tally, What
from jobs.states import State

_STEP = timedelta(microseconds=1)
_NEVER = datetime.max.replace(tzinfo=UTC)
_DID_NOT_FIRE = (State.MISSED.value, State.SKIPPED.value)


class Fired(NamedTuple):
    """An execution, ordered by schedule and instant; ids as text, which is ordered alike and cheaper by the million."""

    schedule_id: str
    instant: datetime
    id: str
    state: str
    fired_at: datetime
    by_schedule: bool  # or else by somebody who asked for this instant


@dataclass(frozen=True, slots=True)
class Dropped:
    schedule_id: UUID
    first: datetime
    last: datetime
    count: int


@dataclass(frozen=True, slots=True)
class Version:
    """What was in force for the instants in (from_at, to_at]."""

    from_at: datetime
    to_at: datetime | None
    paused: bool
    recurrence: Recurrence
    jitter_seconds: float
    max_count: int | None
    settled_before: int | None = None  # by the versions before it; None: of before this was written down

    @property
    def until(self) -> datetime:
        return self.to_at or _NEVER


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A schedule with its history; instants before `settled_before` (None: all) must be accounted for."""

    id: UUID
    settled_before: datetime | None
    quarantined: bool
    versions: Sequence[Version]
    dropped: Sequence[Dropped]


@dataclass(frozen=True, slots=True)
class Window:
    """The instants from `from_` to `to`, both included; what is due after `overdue_after` may still be on its way."""

    from_: datetime
    to: datetime
    now: datetime
    overdue_after: datetime


class Stream:
    """The executions of many schedules, one ahead."""

    def __init__(self, rows: Iterator[Fired]) -> None:
        self._rows = rows
        self.head = next(rows, None)

    def take(self) -> None:
        self.head = next(self._rows, None)

    def of(self, schedule_id: str, until: datetime) -> Iterator[Fired]:
        """Takes those of the schedule up to and including `until`; what is left of earlier ones is passed over."""
        while (head := self.head) is not None and head.schedule_id < schedule_id:
            self.take()
        while (head := self.head) is not None and head.schedule_id == schedule_id and head.instant <= until:
            self.take()
            yield head


class ScheduleWalk:
    """One walk over one schedule; whatever it finds goes into the tally."""

    def __init__(self, schedule: Scheduled, window: Window, stream: Stream, tally: Tally) -> None:
        self._schedule = schedule
        self._key = str(schedule.id)
        self._window = window
        self._stream = stream
        self._tally = tally
        self._until = min(window.to, window.now)
        self._ranges = _by_version(schedule)

    def run(self) -> None:
        used = 0
        for stray in self._ranges.get(None, ()):
            self._differ(stray.first, What.EXTRA, stray.count)
        for version in self._schedule.versions:
            after = max(version.from_at, self._window.from_ - _STEP)
            until = min(version.until, self._until)
            left = None
            used = used if version.settled_before is None else version.settled_before
            if version.max_count is not None:
                used += self._count(version, version.from_at, min(version.until, after), version.max_count - used)
                left = version.max_count - used
            if after < until:
                used += self._walk(version, after, until, left)
        self._take_extra(_NEVER)

    def _walk(self, version: Version, after: datetime, until: datetime, left: int | None) -> int:
        """Returns how many instants there were."""
        self._take_extra(after)
        if version.recurrence.kind is Kind.DELAY:
            return self._walk_delay(version, until)
        if version.paused:
            return self._walk_pause(version, after, until, left)
        return self._walk_active(version, after, until, left)

    def _walk_delay(self, version: Version, until: datetime) -> int:
        """When a fixed delay is due depends on when its runs ended: its own executions say which instants it had."""
        count, previous = 0, None
        for fired in self._stream.of(self._key, until):
            if fired.instant == previous:
                self._differ(fired.instant, What.DUPLICATE)
                continue
            previous = fired.instant
            count += 1
            self._account(version, fired)
        return count

    def _walk_pause(self, version: Version, after: datetime, until: datetime, left: int | None) -> int:
        """Nothing fires; once the pause is over, its instants are counted as dropped."""
        self._take_extra(until)
        if version.to_at is None:
            return 0
        count = self._count(version, after, until, left)
        unexplained, limit = count, left
        for dropped in self._ranges.get(version.from_at, ()):
            low, high = max(after, dropped.first - _STEP), min(until, dropped.last)
            within = self._count(version, low, high, limit)
            limit = None if limit is None else limit - within
            self._drop(dropped, within)
            unexplained -= within
        if unexplained > 0:
            self._differ(version.recurrence.next_after(after), What.ABSENT, unexplained)
        return count

    def _walk_active(self, version: Version, after: datetime, until: datetime, left: int | None) -> int:
        recurrence, stream, schedule_id = version.recurrence, self._stream, self._key
        ranges = iter(self._ranges.get(version.from_at, ()))
        dropped = next(ranges, None)
        count = 0
        instant = recurrence.next_after(after)
        while instant is not None and instant <= until and (left is None or count < left):
            while dropped is not None and dropped.last < instant:
                self._drop(dropped, 0)
                dropped = next(ranges, None)
            head = stream.head
            if dropped is not None and dropped.first <= instant:
                last = min(dropped.last, until)
                within = self._count(version, instant - _STEP, last, None if left is None else left - count)
                self._take_extra(instant - _STEP)
                self._take_twice(version, last)
                self._drop(dropped, within)
                dropped = next(ranges, None)
                count += within
                instant = recurrence.next_after(last)
                continue
            if head is None or head.instant != instant or head.schedule_id != schedule_id:
                self._take_extra(instant - _STEP)
                head = stream.head
            if head is not None and head.instant == instant and head.schedule_id == schedule_id:
                stream.take()
                self._account(version, head)
                head = stream.head
                if head is not None and head.instant == instant and head.schedule_id == schedule_id:
                    for fired in stream.of(schedule_id, instant):
                        self._differ(fired.instant, What.DUPLICATE)
            else:
                self._miss(version, instant)
            count += 1
            instant = recurrence.next_after(instant)
        while dropped is not None:
            self._drop(dropped, 0)
            dropped = next(ranges, None)
        self._take_extra(until)
        return count

    def _account(self, version: Version, fired: Fired) -> None:
        tally = self._tally
        tally.states[fired.state] += 1
        if fired.state in _DID_NOT_FIRE or not fired.by_schedule:
            return
        due = self._due(version, fired.instant)
        if fired.fired_at < due:
            self._differ(fired.instant, What.EARLY)
        tally.add_lateness(fired.fired_at - due)

    def _miss(self, version: Version, instant: datetime) -> None:
        settled = self._schedule.settled_before
        closed = version.to_at is not None and not self._schedule.quarantined
        if closed or settled is None or instant < settled:
            self._differ(instant, What.ABSENT)
        elif not self._schedule.quarantined and self._due(version, instant) < self._window.overdue_after:
            self._differ(instant, What.OVERDUE)

    def _due(self, version: Version, instant: datetime) -> datetime:
        """With jitter; but what is due when a version ends is settled then, whatever its jitter."""
        if not version.jitter_seconds:
            return instant
        moment = jittered(self._schedule.id, instant, version.jitter_seconds)
        return moment if moment <= version.until else instant

    def _drop(self, dropped: Dropped, due: int) -> None:
        """A range stands for the `due` instants that the walk found in it."""
        whole = self._window.from_ <= dropped.first and dropped.last <= self._until
        explained = min(due, dropped.count) if whole else due
        self._tally.dropped += explained
        if due > explained:
            self._differ(dropped.first, What.ABSENT, due - explained)
        if whole and dropped.count > due:
            self._differ(dropped.first, What.EXTRA, dropped.count - due)

    def _take_extra(self, until: datetime) -> None:
        head = self._stream.head
        if head is None or (head.schedule_id == self._key and head.instant > until):
            return
        for fired in self._stream.of(self._key, until):
            if fired.by_schedule:
                self._differ(fired.instant, What.EARLY if fired.instant > self._window.now else What.EXTRA)

    def _take_twice(self, version: Version, until: datetime) -> None:
        """Executions inside a dropped range: one too many of an instant that is counted already, or of none."""
        for fired in self._stream.of(self._key, until):
            if fired.by_schedule:
                is_instant = version.recurrence.next_after(fired.instant - _STEP) == fired.instant
                self._differ(fired.instant, What.DUPLICATE if is_instant else What.EXTRA)

    def _count(self, version: Version, after: datetime, until: datetime, most: int | None) -> int:
        if version.recurrence.kind is Kind.DELAY or until <= after or (version.paused and version.to_at is None):
            return 0
        if most is None:
            return count_instants(version.recurrence, after, until)
        if version.recurrence.kind is Kind.EVERY:
            return min(count_instants(version.recurrence, after, until), max(most, 0))
        return sum(1 for _ in islice(instants_between(version.recurrence, after, until), max(most, 0)))

    def _differ(self, instant: datetime | None, what: What, count: int = 1) -> None:
        self._tally.differ(self._schedule.id, instant, what, count)


def _by_version(schedule: Scheduled) -> dict[datetime | None, list[Dropped]]:
    """The dropped ranges by the start of the version in which each begins; None: in no version."""
    ranges: dict[datetime | None, list[Dropped]] = {}
    versions = iter(schedule.versions)
    version = next(versions, None)
    for dropped in schedule.dropped:
        while version is not None and version.until < dropped.first:
            version = next(versions, None)
        start = version.from_at if version is not None and version.from_at < dropped.first else None
        ranges.setdefault(start, []).append(dropped)
    return ranges
