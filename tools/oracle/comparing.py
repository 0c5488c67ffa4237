"""Compares the instants that the code computes with the minutes that the oracle walks.

Invariant: both sides answer for the same range of minutes, and a difference is reported with what reproduces it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from jobs.domain.recurrence import EARLIEST, Kind, Recurrence, instants_between
from tools.oracle.fields import matching_minutes
from tools.oracle.minutes import MINUTE, ORIGIN, Stretches, fires_by_elapsed_time, firing_minutes, moment

NEAR = 3 * 1440  # minutes before and after a shift of the clocks

CRONS = (
    "30 2 * * *",  # in the usual gap and, elsewhere, in the fold
    "0 0 * * *",  # zones that shift at midnight
    "59 23 * * *",
    "0,15,30,45 0-3 * * *",  # fixed times all through the night
    "5/20 1,2 * * *",
    "0 * * * *",  # real time
    "*/15 0-4 * * *",
    "*/10 2 * * *",  # real time, but only while clocks show the hour
    "45 */2 * * *",
    "1 0-23/3 * * SUN",
    "30 1 25-31 MAR,OCT,NOV 7",  # either day field
    "0 3 L,LW * *",
    "15 2 * * 0#2,5L",
    "*/30 1 * 11 SUN#1",  # once a year, always in America's fold
    "*/30 2 * 10 0L",  # and in Europe's
)


@dataclass(frozen=True, slots=True)
class Difference:
    zone: str
    expression: str
    missing: tuple[int, ...]  # minutes at which only the oracle fires
    extra: tuple[int, ...]  # minutes at which only the code fires

    def __str__(self) -> str:
        missing, extra = ([str(moment(m)) for m in minutes[:3]] for minutes in (self.missing, self.extra))
        return (
            f"{self.expression} in {self.zone}: missing {len(self.missing)} such as {missing}, "
            f"extra {len(self.extra)} such as {extra}"
        )


def ranges_near_shifts(stretches: Stretches) -> Iterator[tuple[int, int]]:
    for stretch in stretches[1:]:
        yield max(stretch.first - NEAR, stretches[0].first), min(stretch.first + NEAR, stretches[-1].last)


def compare(zone: str, expression: str, stretches: Stretches, first: int, last: int) -> Difference | None:
    expected = firing_minutes(matches(expression), fires_by_elapsed_time(expression), stretches, first, last)
    recurrence = Recurrence(Kind.CRON, expression, zone, EARLIEST, None)
    found = instants_between(recurrence, moment(first) - MINUTE, moment(last - 1))
    actual = [(instant - ORIGIN) // MINUTE for instant in found]
    if actual == expected:
        return None
    missing, extra = set(expected) - set(actual), set(actual) - set(expected)
    return Difference(zone, expression, tuple(sorted(missing)), tuple(sorted(extra)))


@lru_cache(maxsize=len(CRONS))
def matches(expression: str) -> bytes:
    return matching_minutes(expression)
