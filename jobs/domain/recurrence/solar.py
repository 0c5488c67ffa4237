"""Instants of solar events at a place: dawn, sunrise, solar noon, sunset and dusk.

Invariant: every solar day, counted by its noon, has at most one instant of an event, within twelve hours of that noon
and on a fixed side of it. So the instants come in the order of the days, and a day may have none (polar summer or
winter).

The formulas are NOAA's solar calculator (after Meeus, Astronomical Algorithms), good to a minute below 72° of latitude
until the year 2100. Instants are rounded to whole seconds, so that the last digits of floating point do not matter.
"""

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from jobs.domain.errors import InvalidInput
from jobs.domain.recurrence.bounds import EARLIEST

_DAY_MINUTES = 1440.0
_DAYS_TO_J2000 = 10957.5  # from 1970-01-01T00:00Z to 2000-01-01T12:00Z
_SEARCHED_DAYS = 3653
_EXPRESSION = re.compile(r"([a-z_]+) +([+-]?[0-9]{1,2}(?:\.[0-9]{1,8})?) *, *([+-]?[0-9]{1,3}(?:\.[0-9]{1,8})?)")


class SolarEvent(StrEnum):
    DAWN_ASTRONOMICAL = "dawn_astronomical"
    DAWN_NAUTICAL = "dawn_nautical"
    DAWN_CIVIL = "dawn_civil"
    SUNRISE = "sunrise"
    SOLAR_NOON = "solar_noon"
    SUNSET = "sunset"
    DUSK_CIVIL = "dusk_civil"
    DUSK_NAUTICAL = "dusk_nautical"
    DUSK_ASTRONOMICAL = "dusk_astronomical"


# Zenith angle of the sun's centre; at sunrise its upper edge is visible, raised by refraction.
_ZENITH_DEGREES = {
    SolarEvent.DAWN_ASTRONOMICAL: 108.0,
    SolarEvent.DAWN_NAUTICAL: 102.0,
    SolarEvent.DAWN_CIVIL: 96.0,
    SolarEvent.SUNRISE: 90.833,
    SolarEvent.SUNSET: 90.833,
    SolarEvent.DUSK_CIVIL: 96.0,
    SolarEvent.DUSK_NAUTICAL: 102.0,
    SolarEvent.DUSK_ASTRONOMICAL: 108.0,
}
_BEFORE_NOON = frozenset(
    {SolarEvent.DAWN_ASTRONOMICAL, SolarEvent.DAWN_NAUTICAL, SolarEvent.DAWN_CIVIL, SolarEvent.SUNRISE}
)


@dataclass(frozen=True, slots=True)
class SolarRule:
    """A solar event at a place."""

    event: SolarEvent
    latitude: float
    longitude: float

    def next_after(self, after: datetime) -> datetime | None:
        """Return the first instant later than `after`; None if the event does not occur for ten years."""
        elapsed = (after - EARLIEST) / timedelta(minutes=1)
        # The first day whose noon and evening may still come.
        day = math.floor((elapsed + 4 * self.longitude - 720) / _DAY_MINUTES) - 1
        for candidate in range(day, day + _SEARCHED_DAYS):
            instant = self._instant(candidate)
            if instant is not None and instant > after:
                return instant
        return None

    def _instant(self, day: int) -> datetime | None:
        mean_noon = day * _DAY_MINUTES + 720 - 4 * self.longitude
        _, equation = _compute_sun_position(mean_noon)
        minutes = mean_noon - equation
        for _ in range(3):
            declination, equation = _compute_sun_position(minutes)
            arc = self._minutes_from_noon(declination)
            if arc is None:
                return None
            minutes = mean_noon - equation + arc
        return EARLIEST + timedelta(seconds=round(minutes * 60))

    def _minutes_from_noon(self, declination: float) -> float | None:
        if self.event is SolarEvent.SOLAR_NOON:
            return 0.0
        latitude = math.radians(self.latitude)
        height = math.cos(math.radians(_ZENITH_DEGREES[self.event])) - math.sin(latitude) * math.sin(declination)
        reach = math.cos(latitude) * math.cos(declination)
        if abs(height) >= reach:
            return None  # the sun stays above or below that height all day
        arc = 4 * math.degrees(math.acos(height / reach))
        return -arc if self.event in _BEFORE_NOON else arc


@lru_cache(maxsize=4096)
def parse_solar_rule(expression: str) -> SolarRule:
    """Parse `<event> <latitude>,<longitude>`, such as `sunrise 48.8566,2.3522`."""
    parts = _EXPRESSION.fullmatch(expression)
    if parts is None or parts[1] not in set(SolarEvent):
        raise InvalidInput(
            "expression",
            "The solar expression must be an event and a place, such as sunrise 48.8566,2.3522; "
            f"events are {', '.join(SolarEvent)}.",
        )
    latitude, longitude = float(parts[2]), float(parts[3])
    if abs(latitude) > 90 or abs(longitude) > 180:
        raise InvalidInput(
            "expression", "The latitude must lie between -90 and 90 and the longitude between -180 and 180."
        )
    return SolarRule(SolarEvent(parts[1]), latitude, longitude)


def _compute_sun_position(minutes: float) -> tuple[float, float]:
    """Return the sun's declination in radians and the equation of time in minutes, `minutes` after 1970."""
    century = (minutes / _DAY_MINUTES - _DAYS_TO_J2000) / 36525
    mean_longitude = math.radians((280.46646 + century * (36000.76983 + century * 0.0003032)) % 360)
    anomaly = math.radians(357.52911 + century * (35999.05029 - 0.0001537 * century))
    eccentricity = 0.016708634 - century * (0.000042037 + 0.0000001267 * century)
    centre = (
        math.sin(anomaly) * (1.914602 - century * (0.004817 + 0.000014 * century))
        + math.sin(2 * anomaly) * (0.019993 - 0.000101 * century)
        + math.sin(3 * anomaly) * 0.000289
    )
    node = math.radians(125.04 - 1934.136 * century)
    longitude = mean_longitude + math.radians(centre - 0.00569 - 0.00478 * math.sin(node))
    mean_obliquity = 23 + (26 + (21.448 - century * (46.815 + century * (0.00059 - century * 0.001813))) / 60) / 60
    obliquity = math.radians(mean_obliquity + 0.00256 * math.cos(node))
    declination = math.asin(math.sin(obliquity) * math.sin(longitude))
    y = math.tan(obliquity / 2) ** 2
    equation = 4 * math.degrees(
        y * math.sin(2 * mean_longitude)
        - 2 * eccentricity * math.sin(anomaly)
        + 4 * eccentricity * y * math.sin(anomaly) * math.cos(2 * mean_longitude)
        - 0.5 * y * y * math.sin(4 * mean_longitude)
        - 1.25 * eccentricity * eccentricity * math.sin(2 * anomaly)
    )
    return declination, equation
