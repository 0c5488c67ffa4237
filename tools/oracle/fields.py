"""Which wall-clock minutes a cron expression matches, as one byte a minute.

Invariant: the map of a wall-clock calendar knows no time zone; a byte is 1 exactly if all fields match that minute.
"""

from collections.abc import Callable
from datetime import date, timedelta

FIRST_DAY = date(2019, 12, 25)
LAST_DAY = date(2038, 1, 8)
DAY_MINUTES = 1440

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


def matching_minutes(expression: str) -> bytes:
    """For each minute from the midnight that begins FIRST_DAY: does the expression match it?"""
    minute, hour, day_of_month, month, weekday = expression.lower().split()
    minutes, hours = _numbers(minute, 0, 59), _numbers(hour, 0, 23)
    months = _numbers(month, 1, 12, names={name: number for number, name in enumerate(_MONTHS, 1)})
    matching_day = bytes(h in hours and m in minutes for h in range(24) for m in range(60))
    other_day = bytes(DAY_MINUTES)
    by_date, by_weekday = _dates(day_of_month), _weekdays(weekday)
    both = day_of_month[0] == "*" or weekday[0] == "*"

    def matches(day: date) -> bool:
        combine = all if both else any
        return day.month in months and combine((by_date(day), by_weekday(day)))

    days = (FIRST_DAY + timedelta(days=n) for n in range((LAST_DAY - FIRST_DAY).days + 1))
    return b"".join(matching_day if matches(day) else other_day for day in days)


def _numbers(field: str, low: int, high: int, names: dict[str, int] | None = None) -> set[int]:
    found: set[int] = set()
    for term in field.split(","):
        extent, _, step = term.partition("/")
        first, _, last = extent.partition("-")
        if extent == "*":
            start, end = low, high
        else:
            start = _number(first, names)
            end = _number(last, names) if last else (high if step else start)
        found |= set(range(start, end + 1, int(step or 1)))
    return found


def _number(text: str, names: dict[str, int] | None) -> int:
    return names[text] if names and text in names else int(text)


def _dates(field: str) -> Callable[[date], bool]:
    terms = field.split(",")
    numbers = {n for term in terms if term not in ("l", "lw") for n in _numbers(term, 1, 31)}

    def matches(day: date) -> bool:
        if day.day in numbers:
            return True
        rest_of_month = [day + timedelta(days=n) for n in range(1, 32) if (day + timedelta(days=n)).month == day.month]
        if "l" in terms and not rest_of_month:
            return True
        working = day.weekday() < 5
        return "lw" in terms and working and all(later.weekday() >= 5 for later in rest_of_month)

    return matches


def _weekdays(field: str) -> Callable[[date], bool]:
    names = {name: number for number, name in enumerate(_WEEKDAYS)}
    numbers: set[int] = set()
    special: list[tuple[int, str]] = []
    for term in field.split(","):
        if "#" in term:
            name, nth = term.split("#")
            special.append((_number(name, names) % 7, nth))
        elif term.endswith("l"):
            special.append((int(term[:-1]) % 7, "last"))
        else:
            numbers |= {number % 7 for number in _numbers(term, 0, 7, names=names)}

    def matches(day: date) -> bool:
        sunday_is_0 = day.isoweekday() % 7
        if sunday_is_0 in numbers:
            return True
        nth = str((day.day - 1) // 7 + 1)
        is_last = (day + timedelta(days=7)).month != day.month
        return any(
            sunday_is_0 == wanted and (nth == which or (which == "last" and is_last)) for wanted, which in special
        )

    return matches
