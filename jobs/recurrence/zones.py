"""Local time: which moments show a wall-clock time or a date, and when a zone's clocks shift.

Invariant: zoneinfo is the only judge. A moment shows a wall-clock time only if zoneinfo, asked for it, says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

MINUTE = timedelta(minutes=1)
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_PROBE = timedelta(hours=6)  # no zone shifts forth and back within this
# What these two mean differs between machines: they are files of the host, not places.
_HOST_DEPENDENT_ZONES = frozenset({"localtime", "Factory"})


@dataclass(frozen=True, slots=True)
class Shift:
    """At the moment `at` the clocks change from `before` to `after`: forward over a gap or back into a fold."""

    at: datetime
    before: timedelta  # offset from UTC
    after: timedelta

    @property
    def forward(self) -> bool:
        return self.after > self.before

    @property
    def skipped_or_repeated(self) -> tuple[datetime, datetime]:
        """The wall-clock times from (included) and to (excluded) that do not exist, or that come twice."""
        walls = sorted(self.at.replace(tzinfo=None) + offset for offset in (self.before, self.after))
        return walls[0], walls[1]


@lru_cache(maxsize=1024)
def zone_named(name: str) -> ZoneInfo:
    return ZoneInfo(name)


@lru_cache(maxsize=1)
def timezone_names() -> frozenset[str]:
    # Membership, not a try of ZoneInfo(name): names are paths, and not all files found there are zones.
    return frozenset(available_timezones()) - _HOST_DEPENDENT_ZONES


def offset_of(moment: datetime, zone: ZoneInfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def shows(instant: datetime, zone: ZoneInfo, wall: datetime) -> bool:
    return instant.astimezone(zone).replace(tzinfo=None) == wall


def once(wall: datetime, zone: ZoneInfo) -> datetime:
    """The one moment of a wall-clock minute: the first of the two in a fold, the end of the gap in a gap."""
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if shows(instant, zone, wall):
        return instant
    # In a gap: read with the offset before it (fold 0) the time lies behind the shift, with the one after it in front.
    shift = _first_shift(wall.replace(tzinfo=zone, fold=1).astimezone(UTC) - _SECOND, instant, zone)
    end = (shift.at + shift.after).replace(tzinfo=None)
    # Clocks have shifted by odd seconds, until 1972; times of a schedule are whole minutes.
    return shift.at + (-timedelta(seconds=end.second) % MINUTE)


def shifts_between(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[Shift]:
    """The shifts later than `start`, up to and including `end`."""
    for year in range(start.astimezone(UTC).year, end.astimezone(UTC).year + 1):
        yield from (shift for shift in _shifts_of_year(year, zone.key) if start < shift.at <= end)


@lru_cache(maxsize=4096)
def _shifts_of_year(year: int, zone_name: str) -> tuple[Shift, ...]:
    """Looked for once: a save is answered with the shifts of three years that touch it."""
    zone, shifts = zone_named(zone_name), list[Shift]()
    start, end = datetime(year, 1, 1, tzinfo=UTC) - _SECOND, datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    offset = offset_of(start, zone)
    while start < end:
        probe = min(start + _PROBE, end)
        probed = offset_of(probe, zone)
        if probed != offset:
            shifts.append(_first_shift(start, probe, zone))
        start, offset = probe, probed
    return tuple(shifts)


def spans_of_day(day: date, zone: ZoneInfo) -> tuple[tuple[datetime, datetime], ...]:
    """When the date is shown, as moments from (included) and to (excluded).

    Nearly always one span. There are two when clocks that have just passed midnight go back over it, and none when
    a zone leaves out a date.
    """
    return _spans_of_day(day, zone.key)


@lru_cache(maxsize=16_384)
def _spans_of_day(day: date, zone_name: str) -> tuple[tuple[datetime, datetime], ...]:
    zone = zone_named(zone_name)
    midnight = datetime.combine(day, time(), UTC)
    # Wider than any offset, and than any shift beside the day.
    start, end = midnight - 2 * _DAY, midnight + 3 * _DAY
    if offset_of(start, zone) == offset_of(end, zone):
        first = midnight - offset_of(start, zone)
        return ((first, first + _DAY),)
    shifts = list(shifts_between(zone, start, end))
    edges = [start, *(shift.at for shift in shifts), end]
    spans: list[tuple[datetime, datetime]] = []
    for opening, closing in pairwise(edges):
        first = midnight - offset_of(opening, zone)
        span = max(opening, first), min(closing, first + _DAY)
        if span[0] >= span[1]:
            continue
        if spans and spans[-1][1] == span[0]:
            span = spans.pop()[0], span[1]
        spans.append(span)
    return tuple(spans)


def _first_shift(low: datetime, high: datetime, zone: ZoneInfo) -> Shift:
    """The shift in (low, high], to the second; the offsets at both ends differ."""
    low = low.replace(microsecond=0)  # zones shift at whole seconds
    before = offset_of(low, zone)
    first, last = 0, -((low - high) // _SECOND)
    while last - first > 1:
        middle = (first + last) // 2
        if offset_of(low + middle * _SECOND, zone) == before:
            first = middle
        else:
            last = middle
    at = min(low + last * _SECOND, high)
    return Shift(at, before, offset_of(at, zone))
