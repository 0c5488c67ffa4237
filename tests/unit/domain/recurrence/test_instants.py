"""The instants of a recurrence, checked against a scan of every minute and against cronsim itself."""

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import assume, given
from hypothesis import strategies as st

from jobs.domain.recurrence import Kind, Recurrence
from tests.unit.domain.recurrence.recurrences import (
    EPOCH,
    MINUTE,
    ODD_ZONES,
    PLAIN_ZONES,
    RESOLUTION,
    at,
    crons,
    fast,
    instants,
    parse,
    slow,
    walk,
)


def local_day(expression: str, zone: str, day: date) -> list[str]:
    """Return the instants of one local day as local times with their offsets."""
    info = ZoneInfo(zone)
    midnight = datetime(day.year, day.month, day.day, tzinfo=info).astimezone(UTC)
    recurrence = parse(expression=expression, zone=zone)
    shown_times = (instant.astimezone(info) for instant in walk(recurrence, midnight - RESOLUTION))
    return [f"{local:%H:%M%z}" for local in takewhile(lambda local: local.date() <= day, shown_times)]


@lru_cache
def days_of_shifts(zone: str) -> list[datetime]:
    info = ZoneInfo(zone)
    days = [datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(365 * 3)]
    shifted = [b for a, b in pairwise(days) if a.astimezone(info).utcoffset() != b.astimezone(info).utcoffset()]
    return shifted or days[:1]


@st.composite
def moments_near_shifts(draw: st.DrawFn, zones: list[str]) -> tuple[str, datetime]:
    zone = draw(st.sampled_from(zones))
    seconds = draw(st.integers(-36 * 3600, 12 * 3600))
    return zone, draw(st.sampled_from(days_of_shifts(zone))) + timedelta(seconds=seconds)


def minute_scan(expression: str, zone: str, start: datetime, hours: int) -> list[datetime]:
    """Apply the rule minute by minute, without offset arithmetic, so that it shares no mistake with the code."""
    info = ZoneInfo(zone)
    begin = start.replace(second=0, microsecond=0) - timedelta(days=2)
    minutes = [begin + n * MINUTE for n in range((48 + hours) * 60)]
    shown_times = [(t, t.astimezone(info).replace(tzinfo=None)) for t in minutes]
    end = max(wall for _, wall in shown_times)
    matching = set(takewhile(lambda wall: wall <= end, CronSim(expression, shown_times[0][1])))
    by_elapsed_time = any(field.startswith("*") for field in expression.split()[:2])
    found = []
    highest = shown_times[0][1]
    for t, wall in shown_times:
        if by_elapsed_time:
            due = wall in matching
        else:  # due when clocks first show the time or jump over it
            due = any(highest + n * MINUTE in matching for n in range(1, (wall - highest) // MINUTE + 1))
            highest = max(highest, wall)
        if due and t > start:
            found.append(t)
    return found


class TestCron:
    @slow
    @given(crons(), moments_near_shifts(PLAIN_ZONES + ODD_ZONES), st.data())
    def test_equals_a_scan_of_every_minute(
        self, expression: str, moment: tuple[str, datetime], data: st.DataObject
    ) -> None:
        zone, start = moment
        expected = minute_scan(expression, zone, start, hours=48)
        recurrence = Recurrence(Kind.CRON, expression, zone, EPOCH, None)
        assert list(islice(walk(recurrence, start), len(expected))) == expected

        anywhere = start + timedelta(seconds=data.draw(st.integers(0, 48 * 3600)))
        following = next((instant for instant in expected if instant > anywhere), None)
        assume(following is not None)
        assert recurrence.next_after(anywhere) == following

    @fast
    @given(crons(), moments_near_shifts(PLAIN_ZONES))
    def test_stepping_equals_one_cronsim_iteration(self, expression: str, moment: tuple[str, datetime]) -> None:
        zone, start = moment
        recurrence = Recurrence(Kind.CRON, expression, zone, EPOCH, None)
        # Start at an unambiguous time; inside a fold cronsim may return a time that has passed.
        assume(not start.astimezone(ZoneInfo(zone)).fold)
        one_iteration = islice(CronSim(expression, start.astimezone(ZoneInfo(zone))), 30)
        assert list(islice(walk(recurrence, start), 30)) == [local.astimezone(UTC) for local in one_iteration]

    @pytest.mark.parametrize(
        ("expression", "zone", "day", "expected"),
        [
            ("30 2 * * *", "America/New_York", date(2026, 3, 8), ["03:00-0400"]),
            ("0,30 2,3 * * *", "America/New_York", date(2026, 3, 8), ["03:00-0400", "03:30-0400"]),
            ("30 1 * * *", "America/New_York", date(2026, 11, 1), ["01:30-0400"]),
            ("*/30 1 * * *", "America/New_York", date(2026, 11, 1),
             ["01:00-0400", "01:30-0400", "01:00-0500", "01:30-0500"]),
            ("*/30 2 * * *", "America/New_York", date(2026, 3, 8), []),
            ("45 */2 * * *", "Australia/Lord_Howe", date(2026, 10, 4),
             ["00:45+1030", *(f"{hour:02}:45+1100" for hour in range(2, 24, 2))]),
            ("*/20 3 * * *", "Pacific/Chatham", date(2026, 4, 5),
             ["03:00+1345", "03:20+1345", "03:40+1345", "03:00+1245", "03:20+1245", "03:40+1245"]),
            ("0 0 * * *", "America/Havana", date(2026, 3, 8), ["01:00-0400"]),
            ("0 12 * * *", "Pacific/Apia", date(2011, 12, 31), ["00:00+1400", "12:00+1400"]),
        ],
    )  # fmt: skip
    def test_daylight_saving(self, expression: str, zone: str, day: date, expected: list[str]) -> None:
        assert local_day(expression, zone, day) == expected

    @pytest.mark.parametrize(("day", "runs"), [(date(2026, 3, 8), 23), (date(2026, 11, 1), 25), (date(2026, 6, 1), 24)])
    def test_hourly_follows_real_time(self, day: date, runs: int) -> None:
        assert len(local_day("0 * * * *", "America/New_York", day)) == runs

    def test_start_in_the_second_pass_of_a_fold_never_returns_the_first(self) -> None:
        second_pass = at("2026-11-01T01:40:00-05:00")
        recurrence = parse(expression="50 1 * * *", zone="America/New_York")
        assert recurrence.next_after(second_pass) == at("2026-11-02T01:50:00-05:00")

    def test_fold_is_found_from_months_before(self) -> None:
        """The clocks show the same offset in January as in the second pass of the fold in November."""
        recurrence = parse(expression="30 1 * 1,11 SUN#1", zone="America/New_York")
        assert recurrence.next_after(at("2026-01-20T00:00:00Z")) == at("2026-11-01T01:30:00-04:00")

    def test_fold_is_not_skipped(self) -> None:
        recurrence = parse(expression="*/30 1 * 11 SUN#1", zone="America/New_York")
        assert recurrence.next_after(at("2026-11-01T01:30:00-04:00")) == at("2026-11-01T01:00:00-05:00")

    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("0 0 29 2 *", "2028-02-29T00:00Z"), ("0 0 L * *", "2026-01-31T00:00Z"), ("0 0 * * 7", "2026-01-04T00:00Z"),
            ("0 0 13 * 5", "2026-01-02T00:00Z"),  # either day field
            ("0 9 * * MON#1", "2026-01-05T09:00Z"), ("  5   4\t* * * ", "2026-01-01T04:05Z"),
            ("@yearly", "2027-01-01T00:00Z"), ("@Annually", "2027-01-01T00:00Z"), ("@monthly", "2026-02-01T00:00Z"),
            ("@weekly", "2026-01-04T00:00Z"), ("@daily", "2026-01-02T00:00Z"), ("@midnight", "2026-01-02T00:00Z"),
            ("@hourly", "2026-01-01T01:00Z"),
        ],
    )  # fmt: skip
    def test_expressions(self, expression: str, expected: str) -> None:
        assert parse(expression=expression).next_after(at("2026-01-01T00:00:00Z")) == at(expected)

    def test_fractions_of_a_second_neither_repeat_nor_skip(self) -> None:
        recurrence = parse(expression="* * * * *")
        assert recurrence.next_after(at("2026-01-01T00:00:59.999999Z")) == at("2026-01-01T00:01:00Z")
        assert recurrence.next_after(at("2026-01-01T00:01:00Z")) == at("2026-01-01T00:02:00Z")
        assert recurrence.next_after(at("2026-01-01T00:01:00.000001Z")) == at("2026-01-01T00:02:00Z")

    def test_threads_do_not_disturb_each_other(self) -> None:
        """Parsed expressions are shared by all threads of a process."""
        recurrence = parse(expression="7 3 * * *", zone="Europe/Paris")
        starts = [EPOCH + timedelta(days=n) for n in range(0, 20_000, 20)]
        alone = [recurrence.next_after(start) for start in starts]
        switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(4) as pool:
                together = list(pool.map(recurrence.next_after, starts))
        finally:
            sys.setswitchinterval(switch_interval)
        assert together == alone


class TestEvery:
    @fast
    @given(instants, st.integers(1_000_000, 10**13), st.integers(-(10**15), 10**15))
    def test_stays_on_the_grid_of_its_anchor(self, anchor: datetime, every_us: int, offset_us: int) -> None:
        every, after = timedelta(microseconds=every_us), anchor + timedelta(microseconds=offset_us)
        expression = f"{every_us // 10**6}.{every_us % 10**6:06}"
        following = Recurrence(Kind.EVERY, expression, "UTC", anchor, None).next_after(after)
        assert following is not None
        assert following > after
        assert following >= anchor
        assert (following - anchor) % every == timedelta(0)
        assert following == anchor or following - every <= after

    def test_a_million_steps_do_not_drift(self) -> None:
        recurrence = parse("every", "1.1", starts_at=EPOCH)
        assert recurrence.next_after(EPOCH + timedelta(seconds=1_099_999)) == EPOCH + timedelta(seconds=1_100_000)


@pytest.mark.parametrize(
    ("kind", "expression"), [("cron", "*/10 * * * *"), ("every", "600"), ("at", "2026-01-01T00:10:00Z")]
)
class TestBounds:
    def test_start_and_end_are_included(self, kind: str, expression: str) -> None:
        bound = at("2026-01-01T00:10:00Z")
        recurrence = parse(kind, expression, starts_at=bound, ends_at=bound)
        assert list(walk(recurrence, EPOCH)) == [bound]

    def test_results_are_in_utc(self, kind: str, expression: str) -> None:
        recurrence = parse(kind, expression, zone="Asia/Tokyo", starts_at=at("2026-01-01T00:00:00+09:00"))
        instant = recurrence.next_after(at("2026-01-01T00:01:00+01:00"))
        assert instant is not None
        assert instant.tzinfo is UTC
        assert recurrence.starts_at.tzinfo is UTC
