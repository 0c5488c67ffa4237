"""What the clocks of a zone show at every real minute, and at which minutes a cron expression fires.

Invariant: a stretch is a run of real minutes over which the wall clock advances by one minute each. The stretches of a
zone lie end to end, so every minute is in exactly one.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import compress, pairwise
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, available_timezones

from tools.oracle.fields import FIRST_DAY

MINUTE = timedelta(minutes=1)
ORIGIN = datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC)
FIRST = int((datetime(2020, 1, 1, tzinfo=UTC) - ORIGIN) / MINUTE)
LAST = int((datetime(2038, 1, 1, tzinfo=UTC) - ORIGIN) / MINUTE)
_LOOK_EVERY = 1440  # minutes; no zone moves its clocks forth and back within a day
_DAYS = [(minute, ORIGIN + minute * MINUTE) for minute in range(FIRST, LAST + 1, _LOOK_EVERY)]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Real minutes `first` to `last` (excluded), counted from ORIGIN; the first shows the wall-clock minute `wall`."""

    first: int
    last: int
    wall: int


Stretches = tuple[Stretch, ...]


def moment(minute: int) -> datetime:
    return ORIGIN + minute * MINUTE


def stretches_of(zone: ZoneInfo) -> Stretches:
    """From FIRST to LAST."""
    found = []
    begin, begin_wall = FIRST, _read_wall_clock(zone, FIRST)
    for (minute, advance), (_, later_advance) in pairwise(_daily_advances(zone)):
        if advance != later_advance:
            ahead, wall = _next_break(zone, minute)
            found.append(Stretch(begin, ahead, begin_wall))
            begin, begin_wall = ahead, wall
    found.append(Stretch(begin, LAST, begin_wall))
    return tuple(found)


@lru_cache(maxsize=1)
def distinct_zones() -> dict[Stretches, list[str]]:
    """Every zone of the tz database, those together whose clocks never differ from FIRST to LAST."""
    classes: dict[Stretches, list[str]] = {}
    read: dict[bytes, Stretches] = {}
    for name in sorted(available_timezones() - {"localtime", "Factory"}):
        # Many names are links; looking at the same file twice is half of the time that this takes.
        content = _file_of(name)
        if content not in read:
            read[content] = stretches_of(ZoneInfo(name))
        classes.setdefault(read[content], []).append(name)
    return classes


def _file_of(name: str) -> bytes:
    files = (Path(directory, name) for directory in TZPATH)
    return next((file.read_bytes() for file in files if file.is_file()), name.encode())


def fires_by_elapsed_time(expression: str) -> bool:
    return any(field.startswith("*") for field in expression.split()[:2])


def firing_minutes(matching: bytes, by_elapsed_time: bool, stretches: Stretches, first: int, last: int) -> list[int]:
    """The real minutes from `first` to `last` (excluded) at which an expression with these matching minutes fires.

    By elapsed time: whenever clocks show a match. By the wall clock: when they first show it, or jump over it.
    """
    fires = bytearray()
    highest = None
    for stretch in stretches:
        begin, end = max(stretch.first, first), min(stretch.last, last)
        if begin >= end:
            continue
        wall = stretch.wall + begin - stretch.first
        shown = bytearray(matching[wall : wall + end - begin])
        if not by_elapsed_time and highest is not None:
            seen_before = min(max(highest + 1 - wall, 0), len(shown))
            shown[:seen_before] = bytes(seen_before)
            if 1 in matching[highest + 1 : wall]:
                shown[0] = 1
        highest = max(highest or 0, wall + end - begin - 1)
        fires += shown
    return list(compress(range(first, last), fires))


def _read_wall_clock(zone: ZoneInfo, minute: int) -> int:
    wall = moment(minute).astimezone(zone).replace(tzinfo=UTC) - ORIGIN
    assert wall % MINUTE == timedelta(0), f"{zone.key} is off the whole minute"
    return wall // MINUTE


def _daily_advances(zone: ZoneInfo) -> list[tuple[int, timedelta | None]]:
    """How far the clocks are from UTC once a day: minutes are looked at one by one only where that changed."""
    return [(minute, at.astimezone(zone).utcoffset()) for minute, at in _DAYS]


def _next_break(zone: ZoneInfo, minute: int) -> tuple[int, int]:
    """The first minute within a day that does not show what follows; hour by hour, then minute by minute."""
    for step, length in ((60, _LOOK_EVERY), (1, 60)):
        wall = _read_wall_clock(zone, minute)
        for ahead in range(minute + step, minute + length + step, step):
            shown = _read_wall_clock(zone, ahead)
            if shown != wall + ahead - minute:
                break
            minute, wall = ahead, shown
    return ahead, shown
