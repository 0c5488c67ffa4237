"""Solar events compared with published times, and polar days without events."""

import math
from datetime import datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.errors import InvalidInput
from jobs.domain.recurrence import Kind, Recurrence, SolarEvent
from tests.unit.domain.recurrence.recurrences import EPOCH, at, fast, instants, parse, walk

IN_ORDER = list(SolarEvent)


# As published by the United States Naval Observatory for Atlanta on 6 September 2009.
@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("dawn_civil", "2009-09-06T10:50Z"),
        ("sunrise", "2009-09-06T11:15Z"),
        ("solar_noon", "2009-09-06T17:36Z"),
        ("sunset", "2009-09-06T23:56Z"),
        ("dusk_civil", "2009-09-07T00:21Z"),
    ],
)
def test_agrees_with_the_naval_observatory(event: str, expected: str) -> None:
    instant = parse("solar", f"{event} 33.8,-84.4").next_after(at("2009-09-06T06:00Z"))
    assert instant is not None
    assert instant.microsecond == 0
    assert abs(instant - at(expected)) <= timedelta(seconds=40)  # published to the minute


ALTITUDES = {"astronomical": -18.0, "nautical": -12.0, "civil": -6.0, "sunrise": -0.833, "sunset": -0.833}


def altitude(moment: datetime, latitude: float, longitude: float) -> tuple[float, float]:
    """Return the sun's altitude and hour angle in degrees, by the Astronomical Almanac's short formula."""
    n = (moment - at("2000-01-01T12:00Z")) / timedelta(days=1)
    anomaly = math.radians(357.528 + 0.9856003 * n)
    ecliptic = math.radians(280.460 + 0.9856474 * n + 1.915 * math.sin(anomaly) + 0.020 * math.sin(2 * anomaly))
    tilt = math.radians(23.439 - 0.0000004 * n)
    ascension = math.degrees(math.atan2(math.cos(tilt) * math.sin(ecliptic), math.cos(ecliptic)))
    declination = math.asin(math.sin(tilt) * math.sin(ecliptic))
    hour_angle = ((18.697374558 + 24.06570982441908 * n) * 15 + longitude - ascension + 180) % 360 - 180
    phi, theta = math.radians(latitude), math.radians(hour_angle)
    height = math.sin(phi) * math.sin(declination) + math.cos(phi) * math.cos(declination) * math.cos(theta)
    return math.degrees(math.asin(height)), hour_angle


@fast
@given(
    st.sampled_from(list(SolarEvent)),
    st.integers(-650, 650),
    st.integers(-1800, 1800),
    st.integers(0, 365 * 20),
)
def test_sun_is_at_the_altitude_of_the_event(event: SolarEvent, latitude: int, longitude: int, day: int) -> None:
    place = latitude / 10, longitude / 10
    recurrence = Recurrence(Kind.SOLAR, f"{event} {place[0]},{place[1]}", "UTC", EPOCH, None)
    instant = recurrence.next_after(at("2020-01-01T00:00Z") + timedelta(days=day))
    assert instant is not None
    height, hour_angle = altitude(instant, *place)
    if event is SolarEvent.SOLAR_NOON:
        assert abs(hour_angle) < 0.05
        return
    assert abs(height - next(degrees for name, degrees in ALTITUDES.items() if name in event)) < 0.05
    assert (hour_angle < 0) == (event.startswith("dawn") or event is SolarEvent.SUNRISE)


@fast
@given(
    st.sampled_from(list(SolarEvent)),
    st.integers(-90 * 10**4, 90 * 10**4),
    st.integers(-180 * 10**4, 180 * 10**4),
    instants,
    st.integers(0, 10 * 86_400),
)
def test_instants_do_not_depend_on_the_start(
    event: SolarEvent, latitude: int, longitude: int, start: datetime, offset: int
) -> None:
    expression = f"{event} {latitude / 10**4:.4f},{longitude / 10**4:.4f}"
    recurrence = Recurrence(Kind.SOLAR, expression, "UTC", EPOCH, None)
    walked = list(islice(walk(recurrence, start), 12))
    assert all(a < b for a, b in pairwise(walked))
    anywhere = start + timedelta(seconds=offset)
    later = [instant for instant in walked if instant > anywhere]
    if later:
        assert recurrence.next_after(anywhere) == later[0]
        assert recurrence.next_after(later[0] - timedelta(microseconds=1)) == later[0]


def test_events_of_a_day_come_in_order_and_every_day() -> None:
    days = [list(islice(walk(parse("solar", f"{event} 45,0"), at("2026-03-01T00:00Z")), 200)) for event in IN_ORDER]
    for events in zip(*days, strict=True):
        assert list(events) == sorted(events)
    for instants_of_event in days:
        assert all(abs(b - a - timedelta(days=1)) < timedelta(minutes=5) for a, b in pairwise(instants_of_event))


def test_polar_days_without_the_event_are_skipped() -> None:
    year = [i for i in instants_of_2026("sunrise 78.22,15.65") if i.year == 2026]
    gaps = [(a, b) for a, b in pairwise(year) if b - a > timedelta(days=2)]
    assert [(a.month, b.month) for a, b in gaps] == [(4, 8)]  # the midnight sun
    assert (year[0].month, year[-1].month) == (2, 10)  # after and before the polar night


def instants_of_2026(expression: str) -> list[datetime]:
    return list(islice(walk(parse("solar", expression), at("2026-01-01T00:00Z")), 300))


def test_refuses_events_that_never_occur() -> None:
    with pytest.raises(InvalidInput, match="two years") as caught:
        # This close to the pole the sun's altitude hardly changes within a day.
        parse("solar", "dusk_astronomical 89.9999,0", starts_at=at("2026-05-01T00:00Z"))
    assert caught.value.field == "expression"


@pytest.mark.parametrize(
    "expression",
    ["", "sunrise", "sunrise 1", "moonrise 1,2", "sunrise 91,0", "sunrise 0,181", "sunrise nan,0", "sunrise 1e1,0",
     "sunrise 1;2", "Sunrise 1,2", "sunrise 1,2,3", "sunrise \u0661,2", "sunrise 1.123456789,2"],
)  # fmt: skip
def test_refuses(expression: str) -> None:
    with pytest.raises(InvalidInput, match=r"\.$") as caught:
        parse("solar", expression)
    assert caught.value.field == "expression"
