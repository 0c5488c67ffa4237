"""The recurrence as a value.

Invariant: a recurrence is one fixed set of instants, and `next_after` returns them strictly ascending. So an iteration
may start, stop and resume anywhere without skipping or repeating an instant.
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

from jobs.domain.errors import InvalidInput
from jobs.domain.recurrence.bounds import RESOLUTION
from jobs.domain.recurrence.cron import WallTimes, next_cron, parse_wall_times
from jobs.domain.recurrence.hashed import resolve_hashed
from jobs.domain.recurrence.solar import parse_solar_rule
from jobs.domain.recurrence.zones import load_zone, spans_of_day

_DECIMAL_SECONDS = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6})0*)?")


class Kind(StrEnum):
    CRON = "cron"  # at the wall-clock times that a cron expression matches
    EVERY = "every"  # at a fixed interval from the start
    AT = "at"  # once
    SOLAR = "solar"  # at a solar event
    DELAY = "delay"  # a fixed delay after the previous run finished


class StoredRecurrence(Protocol):
    """The columns of a row that define a recurrence."""

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
    expression: str  # cron text, seconds as decimal text, an ISO-8601 instant, or a solar event and a place
    timezone: str
    starts_at: datetime  # also the anchor of EVERY: its instants are starts_at + n * every, n >= 0
    ends_at: datetime | None
    excluded: frozenset[date] = frozenset()  # local dates without instants
    key: UUID | None = None  # the schedule's id, from which H in a cron expression is hashed

    @classmethod
    def of(cls, row: StoredRecurrence, *, key: UUID) -> "Recurrence":
        """Build from a stored row, which was validated when it was written."""
        excluded = frozenset(row.excluded_dates or ())
        return cls(Kind(row.kind), row.expression, row.timezone, row.starts_at, row.ends_at, excluded, key)

    def next_after(self, after: datetime) -> datetime | None:
        """Return the first instant later than `after` within [starts_at, ends_at], in UTC; None if none is left."""
        if after < self.starts_at:
            after = self.starts_at - RESOLUTION
        instant = self._next(after)
        if self.excluded:
            instant = self._beyond_excluded(instant)
        if instant is None or (self.ends_at is not None and instant > self.ends_at):
            return None
        return instant if instant.tzinfo is UTC else instant.astimezone(UTC)

    def _next(self, after: datetime) -> datetime | None:
        """Return the next instant regardless of excluded dates and the end."""
        match self.kind:
            case Kind.CRON:
                return next_cron(self.wall_times(), load_zone(self.timezone), after)
            case Kind.EVERY:
                every = parse_interval(self.expression)
                return self.starts_at + ((after - self.starts_at) // every + 1) * every
            case Kind.AT:
                at = datetime.fromisoformat(self.expression)
                return at if at > after else None
            case Kind.SOLAR:
                return parse_solar_rule(self.expression).next_after(after)
            case Kind.DELAY:
                # Later instants depend on when runs finish: see `next_delay_instant`.
                first = skip_excluded_days(self.starts_at, self.excluded, load_zone(self.timezone))
                return first if first > after else None

    def _beyond_excluded(self, instant: datetime | None) -> datetime | None:
        zone = load_zone(self.timezone)
        while instant is not None and (self.ends_at is None or instant <= self.ends_at):
            allowed = skip_excluded_days(instant, self.excluded, zone)
            if allowed == instant:
                return instant
            instant = self._next(allowed - RESOLUTION)
        return None

    def wall_times(self) -> WallTimes:
        """Return the matching wall-clock times of a cron recurrence."""
        return parse_wall_times(self.plain_expression())

    def plain_expression(self) -> str:
        """Return the expression with its hashed fields resolved."""
        if self.key is None or self.kind is not Kind.CRON:
            return self.expression
        return resolve_hashed(self.expression, self.key)


def next_delay_instant(recurrence: Recurrence, ended_at: datetime) -> datetime | None:
    """Return when a fixed delay is due after a run that finished at `ended_at`; None if its end has passed by then."""
    if recurrence.kind is not Kind.DELAY:
        raise ValueError(f"Only a fixed delay is re-armed after a run, not a schedule of kind {recurrence.kind}.")
    due = max(ended_at + parse_interval(recurrence.expression), recurrence.starts_at)
    due = skip_excluded_days(due, recurrence.excluded, load_zone(recurrence.timezone))
    return None if recurrence.ends_at is not None and due > recurrence.ends_at else due.astimezone(UTC)


def skip_excluded_days(instant: datetime, excluded: frozenset[date], zone: ZoneInfo) -> datetime:
    """Return the instant itself, or the end of the excluded days that contain it."""
    while (day := instant.astimezone(zone).date()) in excluded:
        instant = next(end for start, end in spans_of_day(day, zone) if start <= instant < end)
    return instant


@lru_cache(maxsize=4096)
def parse_interval(expression: str) -> timedelta:
    parts = _DECIMAL_SECONDS.fullmatch(expression)
    if parts is None:
        raise InvalidInput(
            "expression",
            "The interval must be seconds as a plain decimal number, such as 30 or 1.5, and at most 10 years.",
        )
    whole, fraction = parts.groups(default="")
    # Whole microseconds: floats would drift from the anchor.
    return timedelta(seconds=int(whole), microseconds=int(fraction.ljust(6, "0")))
