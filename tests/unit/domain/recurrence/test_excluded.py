"""Excluded dates, and fixed delays, which move past them."""

import time
from datetime import date, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.errors import InvalidInput
from jobs.domain.recurrence import Kind, Recurrence, next_delay_instant
from tests.unit.domain.recurrence.recurrences import EPOCH, ODD_ZONES, PLAIN_ZONES, at, crons, fast, parse, slow, walk

# Until 2011 the clocks of Goose Bay went back at one minute past midnight, into the day before.
ZONES = [*PLAIN_ZONES, *ODD_ZONES, "America/Goose_Bay", "Pacific/Apia"]
BEGINS = [
    at("2010-11-04T12:00:00Z"),
    at("2011-12-27T00:00:00Z"),
    at("2026-03-06T00:00:00Z"),
    at("2026-10-30T00:00:00Z"),
]


@slow
@given(
    crons(),
    st.sampled_from(ZONES),
    st.sampled_from(BEGINS),
    st.frozensets(st.integers(-1, 6), max_size=6),
    st.integers(0, 5 * 86_400),
)
def test_instants_on_excluded_dates_do_not_exist(
    expression: str, zone: str, begin: datetime, days: frozenset[int], start: int
) -> None:
    excluded = frozenset(begin.date() + timedelta(days=day) for day in days)
    everything = Recurrence(Kind.CRON, expression, zone, EPOCH, None)
    recurrence = Recurrence(Kind.CRON, expression, zone, EPOCH, None, excluded)
    after = begin + timedelta(seconds=start)
    plain = islice(walk(everything, after), 12_000)
    expected = [i for i in plain if i.astimezone(ZoneInfo(zone)).date() not in excluded][:40]
    assert list(islice(walk(recurrence, after), len(expected))) == expected


@fast
@given(st.integers(600, 100_000), st.sampled_from(ZONES), st.sampled_from(BEGINS), st.frozensets(st.integers(-1, 6)))
def test_an_interval_keeps_its_grid(seconds: int, zone: str, begin: datetime, days: frozenset[int]) -> None:
    excluded = frozenset(begin.date() + timedelta(days=day) for day in days)
    grid = (begin + n * timedelta(seconds=seconds) for n in range(2000))
    expected = [i for i in grid if i.astimezone(ZoneInfo(zone)).date() not in excluded][:40]
    recurrence = Recurrence(Kind.EVERY, str(seconds), zone, begin, None, excluded)
    assert list(islice(walk(recurrence, begin - timedelta(days=1)), len(expected))) == expected


def test_ten_excluded_years_are_skipped_by_days_not_by_instants() -> None:
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(3650)]
    recurrence = parse("every", "1", starts_at=at("2026-01-01T00:00:00Z"), excluded=days)
    started = time.process_time()
    assert recurrence.next_after(EPOCH) == at("2035-12-30T00:00:00Z")
    assert time.process_time() - started < 2  # by instants: 315 million steps


def test_calendar_that_excludes_everything_is_refused() -> None:
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(366)]
    for kind, expression in (("cron", "0 3 * * *"), ("every", "60"), ("at", "2026-05-01T00:00:00Z"), ("delay", "60")):
        with pytest.raises(InvalidInput, match="excluded dates") as caught:
            parse(kind, expression, starts_at=at("2026-01-01T00:00Z"), ends_at=at("2026-12-31T00:00Z"), excluded=days)
        assert caught.value.field == "excluded"


class TestDelay:
    def test_its_only_known_instant_is_the_start(self) -> None:
        start = at("2026-01-01T09:00:00Z")
        recurrence = parse("delay", "90.5", starts_at=start)
        assert list(walk(recurrence, EPOCH)) == [start]

    def test_is_due_after_the_delay(self) -> None:
        recurrence = parse("delay", "90.5", starts_at=at("2026-01-01T09:00:00Z"), ends_at=at("2026-01-01T10:00:00Z"))
        assert next_delay_instant(recurrence, at("2026-01-01T09:00:10Z")) == at("2026-01-01T09:01:40.5Z")
        assert next_delay_instant(recurrence, at("2026-01-01T09:58:29.5Z")) == at("2026-01-01T10:00:00Z")
        assert next_delay_instant(recurrence, at("2026-01-01T09:58:29.6Z")) is None

    def test_waits_for_the_end_of_excluded_days(self) -> None:
        holidays = [date(2026, 12, 25), date(2026, 12, 26)]
        recurrence = parse("delay", "3600", "Europe/Paris", at("2026-12-25T08:00:00Z"), excluded=holidays)
        assert list(walk(recurrence, EPOCH)) == [at("2026-12-26T23:00:00Z")]
        assert next_delay_instant(recurrence, at("2026-12-25T20:00:00Z")) == at("2026-12-26T23:00:00Z")

    def test_only_delays_are_rearmed(self) -> None:
        with pytest.raises(ValueError, match="fixed delay"):
            next_delay_instant(parse("every", "60"), EPOCH)

    @pytest.mark.parametrize("expression", ["", "0", "0.5", "-1", "1e3", "315619201"])
    def test_refuses(self, expression: str) -> None:
        with pytest.raises(InvalidInput):
            parse("delay", expression)
