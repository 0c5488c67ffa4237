"""The instants of a cron expression in a time zone.

Invariant: cronsim says which wall-clock times match; the daylight-saving rules here map them to moments, which do not
depend on where a walk starts. cronsim's own walk through a time zone does: inside a fold it can answer with a time that
has passed, and beside a shift off the full hour (Lord Howe, Chatham) it leaves out matches.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

from jobs.recurrence.zones import offset_of, once, shows

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_LONGEST_FOLD = timedelta(days=1)
_NO_OFFSET = timedelta(0)
_MONTH_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SEARCHED_YEARS = 50  # as cronsim; 29 February on a given weekday comes every 28 or 40 years
_SOME_TIME = datetime(2000, 1, 1)  # noqa: DTZ001 a wall-clock time


class WallTimes:
    """The wall-clock minutes that a plain expression matches, found by table instead of by trying one after another."""

    __slots__ = (
        "_days",
        "_first_hour",
        "_first_minute",
        "_following_hour",
        "_following_minute",
        "_hours",
        "_months",
        "by_real_time",
    )

    def __init__(self, expression: str) -> None:
        parsed = CronSim(expression, _SOME_TIME)
        minute, hour, day, _, weekday = expression.upper().split()
        # As in Debian's cron: with a wildcard minute or hour it runs by elapsed time, not by the wall clock.
        self.by_real_time = minute.startswith("*") or hour.startswith("*")
        self._first_minute = min(parsed.minutes)
        self._following_minute = _following(parsed.minutes, 60)
        self._first_hour = min(parsed.hours)
        self._hours = frozenset(parsed.hours)
        self._following_hour = _following(parsed.hours, 24)
        self._months = frozenset(parsed.months)
        self._days = _matching_days(day, weekday)

    def after(self, wall: datetime) -> datetime | None:
        """The first matching minute later than `wall`."""
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
        """The matching minutes from `start` (included) to `end` (excluded)."""
        wall = self.after(start - timedelta(microseconds=1))
        while wall is not None and wall < end:
            yield wall
            wall = self.after(wall)

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
    """Which days of a month match both day fields; that depends only on its length and its first weekday."""

    __slots__ = ("_by_shape", "_parsed")

    def __init__(self, day: str, weekday: str) -> None:
        self._parsed = CronSim(f"0 0 {day} * {weekday}", _SOME_TIME)
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
def wall_times(expression: str) -> WallTimes:
    """Of a plain expression or an alias; raises CronSimError if it is not valid."""
    return WallTimes(ALIASES.get(expression, expression))


def next_cron(times: WallTimes, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The first instant later than `after`."""
    if zone.key == "UTC":
        match = times.after(after.replace(tzinfo=None))
        return match and match.replace(tzinfo=UTC)
    local = after.astimezone(zone)
    wall = local.replace(tzinfo=None, fold=0)
    match = times.after(wall)
    if match is None:
        return None if not times.by_real_time else _next_by_real_time(times, zone, after)
    # Nearly always the clocks are the same then as now; then no rule applies, and this saves most of the work.
    offset = local.utcoffset() or _NO_OFFSET
    instant = (match - offset).replace(tzinfo=UTC)
    then = instant.astimezone(zone)
    if (
        then.utcoffset() == offset
        and not then.fold
        and (
            not times.by_real_time
            or instant - after <= _LONGEST_FOLD
            or offset_of(after + _LONGEST_FOLD, zone) == offset
        )
    ):
        return instant
    return (
        _next_by_real_time(times, zone, after) if times.by_real_time else _next_by_wall_clock(match, times, zone, after)
    )


def _next_by_wall_clock(match: datetime | None, times: WallTimes, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Every match has one moment, also in a gap and in a fold."""
    while match is not None:
        instant = once(match, zone)
        if instant > after:
            return instant
        match = times.after(match)
    return None


def _next_by_real_time(times: WallTimes, zone: ZoneInfo, after: datetime) -> datetime | None:
    """Every moment that shows a match counts: none in a gap, two in a fold."""
    wall = after.astimezone(zone).replace(tzinfo=None, fold=0)
    ahead = _next_shown(times, wall, zone, after)
    probe = after + _LONGEST_FOLD if ahead is None else min(ahead, after + _LONGEST_FOLD)
    turned_back = offset_of(after, zone) - offset_of(probe, zone)
    if turned_back <= _NO_OFFSET:
        return ahead
    # The clocks go back before `ahead`: times up to the present one are shown again, perhaps sooner.
    repeated = _next_shown(times, wall - turned_back, zone, after)
    return repeated if ahead is None or (repeated is not None and repeated < ahead) else ahead


def _next_shown(times: WallTimes, wall: datetime, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The first moment after `after` that shows a match later than `wall`; a match in a gap is never shown."""
    match = times.after(wall)
    while match is not None:
        for fold in (0, 1):
            instant = match.replace(tzinfo=zone, fold=fold).astimezone(UTC)
            if instant > after and shows(instant, zone, match):
                return instant
        match = times.after(match)
    return None


@lru_cache(maxsize=4096)
def _matching_days(day: str, weekday: str) -> _MatchingDays:
    return _MatchingDays(day, weekday)


def _following(values: set[int], size: int) -> tuple[int, ...]:
    """For each number below `size` the next greater of the values, or -1."""
    table, following = [0] * size, -1
    for number in reversed(range(size)):
        table[number] = following
        if number in values:
            following = number
    return tuple(table)
