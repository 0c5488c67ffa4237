"""A recurrence as a value.

Invariant: a recurrence is one fixed set of instants. `next_after` walks it strictly upwards, so wherever a walk starts,
and however often it stops and resumes, no instant is skipped and none comes twice.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Protocol
from uuid import UUID
from zoneinfo import ZoneInfo

from jobs.errors import InvalidInput
from jobs.recurrence.bounds import RESOLUTION
from jobs.recurrence.cron import WallTimes, next_cron, wall_times
from jobs.recurrence.hashed import resolve_hashed
from jobs.recurrence.solar import parse_sun
from jobs.recurrence.zones import spans_of_day, zone_named

_DECIMAL_SECONDS = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6})0*)?")


class Kind(StrEnum):
    CRON = "cron"  # at the wall-clock times that a cron expression matches
    EVERY = "every"  # every so many seconds from the start
    AT = "at"  # once
    SOLAR = "solar"  # at an event of the sun
    DELAY = "delay"  # so many seconds after the run before has ended


class Stored(Protocol):
    """A row that says when something recurs, whatever else it says."""

    @property
    def kind(self) -> str: ...
    @property
    def expression(self) -> str: ...
    @property
    def timezone(self) -> str: ...
    @property
    def starts_at(self) -> datetime: ...
    @property
    def ends_at(self) -> datetime | None: ...
    @property
    def excluded_dates(self) -> Iterable[date] | None: ...


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A validated recurrence; build one from untrusted values with `parse_recurrence`."""

    kind: Kind
    expression: str  # cron text, seconds as decimal text, an ISO-8601 instant, or an event of the sun and a place
    timezone: str
    starts_at: datetime  # also the anchor of EVERY: its instants are starts_at + n * every, n >= 0
    ends_at: datetime | None
    excluded: frozenset[date] = frozenset()  # local dates without instants
    key: UUID | None = None  # what H in a cron expression is hashed from: the schedule's id

    @classmethod
    def of(cls, row: Stored, *, key: UUID) -> "Recurrence":
        """What was validated when it was stored."""
        excluded = frozenset(row.excluded_dates or ())
        return cls(Kind(row.kind), row.expression, row.timezone, row.starts_at, row.ends_at, excluded, key)

    def next_after(self, after: datetime) -> datetime | None:
        """The first instant later than `after` within [starts_at, ends_at], in UTC; None if none is left."""
        if after < self.starts_at:
            after = self.starts_at - RESOLUTION
        instant = self._next(after)
        if self.excluded:
            instant = self._beyond_excluded(instant)
        if instant is None or (self.ends_at is not None and instant > self.ends_at):
            return None
        return instant if instant.tzinfo is UTC else instant.astimezone(UTC)

    def _next(self, after: datetime) -> datetime | None:
        """Regardless of excluded dates and the end."""
        match self.kind:
            case Kind.CRON:
                return next_cron(self.wall_times(), zone_named(self.timezone), after)
            case Kind.EVERY:
                every = seconds_of(self.expression)
                return self.starts_at + ((after - self.starts_at) // every + 1) * every
            case Kind.AT:
                at = datetime.fromisoformat(self.expression)
                return at if at > after else None
            case Kind.SOLAR:
                return parse_sun(self.expression).next_after(after)
            case Kind.DELAY:
                # Those that follow depend on when runs end: see `rearmed`.
                first = first_not_excluded(self.starts_at, self.excluded, zone_named(self.timezone))
                return first if first > after else None

    def _beyond_excluded(self, instant: datetime | None) -> datetime | None:
        zone = zone_named(self.timezone)
        while instant is not None and (self.ends_at is None or instant <= self.ends_at):
            allowed = first_not_excluded(instant, self.excluded, zone)
            if allowed == instant:
                return instant
            instant = self._next(allowed - RESOLUTION)
        return None

    def wall_times(self) -> WallTimes:
        """Of a cron recurrence: its matching wall-clock times."""
        return wall_times(self.plain_expression())

    def plain_expression(self) -> str:
        """The expression with its hashed fields resolved."""
        if self.key is None or self.kind is not Kind.CRON:
            return self.expression
        return resolve_hashed(self.expression, self.key)


def rearmed(recurrence: Recurrence, ended_at: datetime) -> datetime | None:
    """When a fixed delay is due again after a run that ended at `ended_at`; None if that is after its end."""
    if recurrence.kind is not Kind.DELAY:
        raise ValueError(f"Only a fixed delay is re-armed when a run ends, not a schedule of kind {recurrence.kind}.")
    due = max(ended_at + seconds_of(recurrence.expression), recurrence.starts_at)
    due = first_not_excluded(due, recurrence.excluded, zone_named(recurrence.timezone))
    return None if recurrence.ends_at is not None and due > recurrence.ends_at else due.astimezone(UTC)


def first_not_excluded(moment: datetime, excluded: frozenset[date], zone: ZoneInfo) -> datetime:
    """The moment itself, or the end of the excluded days that it lies in; whole days at a time."""
    while (day := moment.astimezone(zone).date()) in excluded:
        moment = next(end for start, end in spans_of_day(day, zone) if start <= moment < end)
    return moment


@lru_cache(maxsize=4096)
def seconds_of(expression: str) -> timedelta:
    parts = _DECIMAL_SECONDS.fullmatch(expression)
    if parts is None:
        raise InvalidInput(
            "expression",
            "The interval must be seconds as a plain decimal number, such as 30 or 1.5, and at most 10 years.",
        )
    whole, fraction = parts.groups(default="")
    # Whole microseconds: a float would drift away from the anchor.
    return timedelta(seconds=int(whole), microseconds=int(fraction.ljust(6, "0")))
