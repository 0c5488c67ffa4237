"""Local time: mapping wall-clock times and dates to instants, and the clock shifts of a zone.

zoneinfo is the only source of truth.
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
_PROBE_INTERVAL = timedelta(hours=6)  # no zone shifts forth and back within this
# Files of the host, not places: their meaning differs between machines.
_HOST_DEPENDENT_ZONES = frozenset({"localtime", "Factory"})


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of the UTC offset at `at`: forward over a gap or back into a fold."""

    at: datetime
    before: timedelta  # offset from UTC
    after: timedelta

    @property
    def forward(self) -> bool:
        return self.after > self.before

    @property
    def skipped_or_repeated(self) -> tuple[datetime, datetime]:
        """The range of wall-clock times that do not exist or come twice; its end is excluded."""
        walls = sorted(self.at.replace(tzinfo=None) + offset for offset in (self.before, self.after))
        return walls[0], walls[1]


@lru_cache(maxsize=1024)
def load_zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


@lru_cache(maxsize=1)
def timezone_names() -> frozenset[str]:
    # ZoneInfo(name) is no check: names are paths, and not every file there is a zone.
    return frozenset(available_timezones()) - _HOST_DEPENDENT_ZONES


def utc_offset_at(instant: datetime, zone: ZoneInfo) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def shows_wall_time(instant: datetime, zone: ZoneInfo, wall: datetime) -> bool:
    return instant.astimezone(zone).replace(tzinfo=None) == wall


def resolve_wall_time(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the one instant of a wall-clock minute: the first in a fold, the end of the gap in a gap."""
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if shows_wall_time(instant, zone, wall):
        return instant
    # In a gap, fold 0 (the offset before it) gives an instant after the shift, fold 1 one before it.
    shift = _find_shift(wall.replace(tzinfo=zone, fold=1).astimezone(UTC) - _SECOND, instant, zone)
    end = (shift.at + shift.after).replace(tzinfo=None)
    # Until 1972 clocks shifted by odd seconds; times of a schedule are whole minutes.
    return shift.at + (-timedelta(seconds=end.second) % MINUTE)


def shifts_between(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[Shift]:
    """Yield the shifts later than `start`, up to and including `end`."""
    for year in range(start.astimezone(UTC).year, end.astimezone(UTC).year + 1):
        yield from (shift for shift in _shifts_of_year(year, zone.key) if start < shift.at <= end)


@lru_cache(maxsize=4096)
def _shifts_of_year(year: int, zone_name: str) -> tuple[Shift, ...]:
    """Return the shifts of a year, cached: every saved schedule is linted with those of three years."""
    zone, shifts = load_zone(zone_name), list[Shift]()
    start, end = datetime(year, 1, 1, tzinfo=UTC) - _SECOND, datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    offset = utc_offset_at(start, zone)
    while start < end:
        probe = min(start + _PROBE_INTERVAL, end)
        probed = utc_offset_at(probe, zone)
        if probed != offset:
            shifts.append(_find_shift(start, probe, zone))
        start, offset = probe, probed
    return tuple(shifts)


def spans_of_day(day: date, zone: ZoneInfo) -> tuple[tuple[datetime, datetime], ...]:
    """Return the spans of time, ends excluded, in which the zone shows this date.

    Usually one; two when clocks go back across midnight, none when the zone skips the date.
    """
    return _spans_of_day(day, zone.key)


@lru_cache(maxsize=16_384)
def _spans_of_day(day: date, zone_name: str) -> tuple[tuple[datetime, datetime], ...]:
    zone = load_zone(zone_name)
    midnight = datetime.combine(day, time(), UTC)
    # Wider than any offset plus any shift near the day.
    start, end = midnight - 2 * _DAY, midnight + 3 * _DAY
    if utc_offset_at(start, zone) == utc_offset_at(end, zone):
        first = midnight - utc_offset_at(start, zone)
        return ((first, first + _DAY),)
    shifts = list(shifts_between(zone, start, end))
    edges = [start, *(shift.at for shift in shifts), end]
    spans: list[tuple[datetime, datetime]] = []
    for opening, closing in pairwise(edges):
        first = midnight - utc_offset_at(opening, zone)
        span = max(opening, first), min(closing, first + _DAY)
        if span[0] >= span[1]:
            continue
        if spans and spans[-1][1] == span[0]:
            span = spans.pop()[0], span[1]
        spans.append(span)
    return tuple(spans)


def _find_shift(low: datetime, high: datetime, zone: ZoneInfo) -> Shift:
    """Return the shift in (low, high], to the second; the offsets at both ends must differ."""
    low = low.replace(microsecond=0)  # zones shift at whole seconds
    before = utc_offset_at(low, zone)
    first, last = 0, -((low - high) // _SECOND)
    while last - first > 1:
        middle = (first + last) // 2
        if utc_offset_at(low + middle * _SECOND, zone) == before:
            first = middle
        else:
            last = middle
    at = min(low + last * _SECOND, high)
    return Shift(at, before, utc_offset_at(at, zone))
