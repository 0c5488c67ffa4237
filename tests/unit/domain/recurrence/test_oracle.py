"""Comparison with the minute-by-minute oracle, around every shift of every zone from 2020 to 2037."""

from collections import Counter
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from tools.oracle.comparing import CRONS, NEAR, compare, matches, ranges_near_shifts
from tools.oracle.fields import FIRST_DAY
from tools.oracle.minutes import (
    FIRST,
    LAST,
    MINUTE,
    ORIGIN,
    distinct_zones,
    fires_by_elapsed_time,
    firing_minutes,
    moment,
)


@pytest.mark.parametrize("expression", CRONS)
def test_three_days_around_every_shift(expression: str) -> None:
    differences, compared, shifts = [], 0, Counter[int]()
    for stretches, names in distinct_zones().items():
        assert stretches[0].first == FIRST
        assert stretches[-1].last == LAST
        for first, last in ranges_near_shifts(stretches):
            compared += 1
            shifts[last - first] += 1
            difference = compare(names[0], expression, stretches, first, last)
            if difference is not None:
                differences.append(str(difference))
    assert differences == []
    # The tz database of 2026 has 83 zones that differ, with 1,252 shifts: 18,780 combinations with the expressions.
    assert compared > 1000
    assert shifts[2 * NEAR] > 0.99 * compared


def test_covers_every_zone() -> None:
    names = [name for names in distinct_zones().values() for name in names]
    assert len(names) > 590
    assert {"Europe/Paris", "Australia/Lord_Howe", "Africa/Casablanca", "Antarctica/Troll", "America/Nuuk"} <= set(
        names
    )


@pytest.mark.parametrize("expression", CRONS)
def test_oracle_agrees_with_cronsim_away_from_shifts(expression: str) -> None:
    walls = CronSim(expression, moment(FIRST).replace(tzinfo=None) - MINUTE)
    origin, end = ORIGIN.replace(tzinfo=None), FIRST + 2 * 366 * 1440
    expected = []
    while (minute := (next(walls) - origin) // MINUTE) < end:
        expected.append(minute)
    assert origin.date() == FIRST_DAY
    assert [m for m in range(FIRST, end) if matches(expression)[m]] == expected


def test_comparison_finds_mistakes() -> None:
    """cronsim's own iteration is known to fail near half-hour shifts; the oracle must detect it."""
    zone, expression = "Australia/Lord_Howe", "*/20 3 * * *"
    stretches = next(stretches for stretches, names in distinct_zones().items() if zone in names)
    first, last = next(ranges_near_shifts(stretches))
    ours = firing_minutes(matches(expression), fires_by_elapsed_time(expression), stretches, first, last)
    theirs = []
    for local in CronSim(expression, (moment(first) - MINUTE).astimezone(ZoneInfo(zone))):
        if (minute := (local - ORIGIN) // MINUTE) >= last:
            break
        theirs.append(minute)
    assert theirs != ours
    assert compare(zone, expression, stretches, first, last) is None
    # A wrong rule is detected too: fixed times do not follow real time.
    wrong = firing_minutes(matches("30 1 * * *"), True, stretches, first, last)
    assert wrong != firing_minutes(matches("30 1 * * *"), False, stretches, first, last)
