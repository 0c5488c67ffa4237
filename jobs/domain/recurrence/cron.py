"""The instants of a cron expression in a time zone.

Invariant: the instants do not depend on where an iteration starts. cronsim decides which wall-clock times match, and
the daylight-saving rules here map them to instants. cronsim's own iteration through a time zone is not used: inside a
fold it can return a time that has passed, and near a shift off the full hour (Lord Howe, Chatham) it misses matches.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

from jobs.domain.recurrence.zones import resolve_wall_time, shows_wall_time, utc_offset_at

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_MAX_FOLD = timedelta(days=1)
_DAY = timedelta(days=1)
_NO_OFFSET = timedelta(0)
_MONTH_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SEARCHED_YEARS = 50  # like cronsim; 29 February falls on a given weekday every 28 or 40 years
_ANY_TIME = datetime(2000, 1, 1)  # noqa: DTZ001 a wall-clock time


class WallTimes:
    """The wall-clock minutes that a plain expression matches, found by table lookup."""

    __slots__ = (
        "_days",
        "_first_hour",
        "_first_minute",
        "_following_hour",
        "_following_minute",
        "_hours",
        "_hours_sorted",
        "_minutes_sorted",
        "_months",
        "by_real_time",
    )

    def __init__(self, expression: str) -> None:
        parsed = CronSim(expression, _ANY_TIME)
        minute, hour, day, _, weekday = expression.upper().split()
        # Like Debian's cron: with a wildcard minute or hour it runs by elapsed time, not by the wall clock.
        self.by_real_time = minute.startswith("*") or hour.startswith("*")
        self._first_minute = min(parsed.minutes)
        self._following_minute = _build_next_value_table(parsed.minutes, 60)
        self._first_hour = min(parsed.hours)
        self._hours = frozenset(parsed.hours)
        self._following_hour = _build_next_value_table(parsed.hours, 24)
        self._hours_sorted = sorted(parsed.hours)
        self._minutes_sorted = sorted(parsed.minutes)
        self._months = frozenset(parsed.months)
        self._days = _matching_days(day, weekday)

    def after(self, wall: datetime) -> datetime | None:
        """Return the first matching minute later than `wall`."""
        if wall.month in self._months and wall.day in self._days.of_month(wall.year, wall.month):
            hour = wall.hour
            if hour in self._hours:
                minute = self._following_minute[wall.minute]
                if minute >= 0:
                    return datetime(wall.year, wall.month, wall.day, hour, minute)  # noqa: DTZ001
            hour = self._following_hour[hour]
            if hour >= 0:
                return datetime(wall.year, wall.month, wall.day, hour, self._first_minute)  # noqa: DTZ001
        day = self._day_after(wall.year, wall.month, wall.day)
        if day is None:
            return None
        return datetime(day.year, day.month, day.day, self._first_hour, self._first_minute)  # noqa: DTZ001

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yield the matching minutes from `start` (included) to `end` (excluded)."""
        wall = self.after(start - timedelta(microseconds=1))
        while wall is not None and wall < end:
            yield wall
            wall = self.after(wall)

    def count(self, after: datetime, until: datetime, excluded: Collection[date] = ()) -> int:
        """Count the matching minutes later than `after`, up to and including `until`, in one step per day."""
        if until <= after:
            return 0
        a_day = len(self._hours_sorted) * len(self._minutes_sorted)
        day, last = after.date(), until.date()
        total = -self._count_until(after) if self._matches(day, excluded) else 0
        while day < last:
            total += a_day if self._matches(day, excluded) else 0
            day += _DAY
        return total + (self._count_until(until) if self._matches(last, excluded) else 0)

    def _matches(self, day: date, excluded: Collection[date]) -> bool:
        in_month = day.month in self._months and day.day in self._days.of_month(day.year, day.month)
        return in_month and day not in excluded

    def _count_until(self, wall: datetime) -> int:
        """Count the matches of that day up to and including that minute."""
        whole = bisect_left(self._hours_sorted, wall.hour) * len(self._minutes_sorted)
        return whole + (bisect_right(self._minutes_sorted, wall.minute) if wall.hour in self._hours else 0)

    def _day_after(self, year: int, month: int, day: int) -> date | None:
        last_year = year + _SEARCHED_YEARS
        while year <= last_year:
            if month in self._months:
                for candidate in self._days.of_month(year, month):
                    if candidate > day:
                        return date(year, month, candidate)
            day, month = 0, month + 1
            if month > 12:
                year, month = year + 1, 1
        return None


class _MatchingDays:
    """Days of a month that match both day fields, cached by the month's length and first weekday."""

    __slots__ = ("_by_shape", "_parsed")

    def __init__(self, day: str, weekday: str) -> None:
        self._parsed = CronSim(f"0 0 {day} * {weekday}", _ANY_TIME)
        self._by_shape: dict[tuple[int, int], tuple[int, ...]] = {}

    def of_month(self, year: int, month: int) -> tuple[int, ...]:
        length = 29 if month == 2 and year % 4 == 0 and (year % 100 or year % 400 == 0) else _MONTH_LENGTHS[month]
        shape = length, date(year, month, 1).weekday()
        days = self._by_shape.get(shape)
        if days is None:
            matching = (day for day in range(1, length + 1) if self._parsed.match_day(date(year, month, day)))
            days = self._by_shape[shape] = tuple(matching)
        return days


@lru_cache(maxsize=8192)
def parse_wall_times(expression: str) -> WallTimes:
    """Parse a plain expression or an alias; raise CronSimError if it is invalid."""
    return WallTimes(ALIASES.get(expression, expression))


def next_cron(times: WallTimes, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Return the first instant later than `after`."""
    if zone.key == "UTC":
        match = times.after(after.replace(tzinfo=None))
        return match and match.replace(tzinfo=UTC)
    local = after.astimezone(zone)
    wall = local.replace(tzinfo=None, fold=0)
    match = times.after(wall)
    if match is None:
        return None if not times.by_real_time else _next_by_real_time(times, zone, after)
    # Fast path: nearly always the offset is the same at both ends, and no daylight-saving rule applies.
    offset = local.utcoffset() or _NO_OFFSET
    instant = (match - offset).replace(tzinfo=UTC)
    then = instant.astimezone(zone)
    if (
        then.utcoffset() == offset
        and not then.fold
        and (not times.by_real_time or instant - after <= _MAX_FOLD or utc_offset_at(after + _MAX_FOLD, zone) == offset)
    ):
        return instant
    return (
        _next_by_real_time(times, zone, after) if times.by_real_time else _next_by_wall_clock(match, times, zone, after)
    )


def _next_by_wall_clock(match: datetime | None, times: WallTimes, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Map every match to exactly one instant, also in a gap and in a fold."""
    while match is not None:
        instant = resolve_wall_time(match, zone)
        if instant > after:
            return instant
        match = times.after(match)
    return None


def _next_by_real_time(times: WallTimes, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Count every instant that shows a match: none in a gap, two in a fold."""
    wall = after.astimezone(zone).replace(tzinfo=None, fold=0)
    ahead = _next_shown_match(times, wall, zone, after)
    probe = after + _MAX_FOLD if ahead is None else min(ahead, after + _MAX_FOLD)
    turned_back = utc_offset_at(after, zone) - utc_offset_at(probe, zone)
    if turned_back <= _NO_OFFSET:
        return ahead
    # The clocks go back before `ahead`: earlier times are shown again, perhaps sooner.
    repeated = _next_shown_match(times, wall - turned_back, zone, after)
    return repeated if ahead is None or (repeated is not None and repeated < ahead) else ahead


def _next_shown_match(times: WallTimes, wall: datetime, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Return the first instant after `after` that shows a match later than `wall`; a gap shows none."""
    match = times.after(wall)
    while match is not None:
        for fold in (0, 1):
            instant = match.replace(tzinfo=zone, fold=fold).astimezone(UTC)
            if instant > after and shows_wall_time(instant, zone, match):
                return instant
        match = times.after(match)
    return None


@lru_cache(maxsize=4096)
def _matching_days(day: str, weekday: str) -> _MatchingDays:
    return _MatchingDays(day, weekday)


def _build_next_value_table(values: set[int], size: int) -> tuple[int, ...]:
    """Return for each number below `size` the next greater value, or -1."""
    table, following = [0] * size, -1
    for number in reversed(range(size)):
        table[number] = following
        if number in values:
            following = number
    return tuple(table)
