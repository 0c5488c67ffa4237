"""Describes recurrences in words.

Cron expressions are described by cronsim, which also matches them.
"""

from datetime import datetime, timedelta
from functools import lru_cache

from cronsim import CronSim

from jobs.domain.recurrence.cron import ALIASES
from jobs.domain.recurrence.solar import SolarEvent, parse_solar_rule
from jobs.domain.recurrence.values import Kind, Recurrence, parse_interval

_UNITS = (("week", 604_800), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
_EVENT_NAMES = {
    SolarEvent.DAWN_ASTRONOMICAL: "astronomical dawn",
    SolarEvent.DAWN_NAUTICAL: "nautical dawn",
    SolarEvent.DAWN_CIVIL: "civil dawn",
    SolarEvent.SUNRISE: "sunrise",
    SolarEvent.SOLAR_NOON: "solar noon",
    SolarEvent.SUNSET: "sunset",
    SolarEvent.DUSK_CIVIL: "civil dusk",
    SolarEvent.DUSK_NAUTICAL: "nautical dusk",
    SolarEvent.DUSK_ASTRONOMICAL: "astronomical dusk",
}


def describe_recurrence(recurrence: Recurrence) -> str:
    """Return a description such as "At 03:00 every day, Europe/Paris"."""
    words = _describe(recurrence)
    if recurrence.excluded:
        dates = len(recurrence.excluded)
        words += f", except on {dates} excluded {'date' if dates == 1 else 'dates'}"
    return words


def _describe(recurrence: Recurrence) -> str:
    match recurrence.kind:
        case Kind.CRON:
            return f"{_describe_cron(recurrence.plain_expression())}, {recurrence.timezone}"
        case Kind.EVERY:
            return f"Every {_format(parse_interval(recurrence.expression))}"
        case Kind.DELAY:
            return f"{_format(parse_interval(recurrence.expression), one='1 ').capitalize()} after each run has ended"
        case Kind.AT:
            return f"Once at {datetime.fromisoformat(recurrence.expression):%Y-%m-%d %H:%M:%S} UTC"
        case Kind.SOLAR:
            sun = parse_solar_rule(recurrence.expression)
            north, east = "N" if sun.latitude >= 0 else "S", "E" if sun.longitude >= 0 else "W"
            place = f"{abs(sun.latitude):g}°{north} {abs(sun.longitude):g}°{east}"
            return f"At {_EVENT_NAMES[sun.event]} every day, at {place}"


@lru_cache(maxsize=4096)
def _describe_cron(plain: str) -> str:
    try:
        words: str = CronSim(ALIASES.get(plain, plain), datetime(2000, 1, 1)).explain()  # noqa: DTZ001 a wall-clock time
    except Exception:  # noqa: BLE001 the expression itself is the fallback
        return f"Cron {plain}"
    return words


def _format(length: timedelta, *, one: str = "") -> str:
    """Format a duration in at most two units: "2 hours and 30 minutes"; one unit is "hour", or "1 hour" with `one`."""
    seconds = length // timedelta(seconds=1)
    parts = []
    if not length.microseconds:
        for unit, size in _UNITS:
            number, seconds = divmod(seconds, size)
            if number:
                parts.append((number, unit))
    if not 1 <= len(parts) <= 2:
        return f"{length.total_seconds():.6f}".rstrip("0").rstrip(".") + " seconds"
    if parts == [(1, parts[0][1])]:
        return f"{one}{parts[0][1]}"
    return " and ".join(f"{number} {unit}{'' if number == 1 else 's'}" for number, unit in parts)
