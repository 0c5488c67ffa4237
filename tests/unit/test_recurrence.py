"""The instants of a recurrence, checked against a scan of every minute and against cronsim itself."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone
from functools import lru_cache
from itertools import islice, pairwise, takewhile
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jobs.errors import InvalidInput
from jobs.recurrence import CatchUp, Kind, Recurrence, due_instants, jittered, parse_recurrence, settle

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RESOLUTION = timedelta(microseconds=1)

# Shifts on the hour, away from midnight: here cronsim's own walk does not depend on where it starts.
PLAIN_ZONES = ["America/New_York", "Europe/Paris", "Europe/Dublin", "Africa/Casablanca", "Antarctica/Troll", "UTC"]
# Half-hour shifts, shifts at a quarter to, shifts at midnight.
ODD_ZONES = ["Australia/Lord_Howe", "Pacific/Chatham", "America/Havana", "Africa/Cairo", "Asia/Beirut"]

instants = st.integers(0, 4 * 10**15).map(lambda microseconds: EPOCH + timedelta(microseconds=microseconds))
fast = settings(deadline=None, database=None, max_examples=200)
slow = settings(deadline=None, database=None, max_examples=50)


def parse(
    kind: str = "cron",
    expression: str = "0 3 * * *",
    zone: str = "UTC",
    starts_at: datetime = EPOCH,
    ends_at: datetime | None = None,
) -> Recurrence:
    return parse_recurrence(kind=kind, expression=expression, timezone=zone, starts_at=starts_at, ends_at=ends_at)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def walk(recurrence: Recurrence, after: datetime) -> Iterator[datetime]:
    instant = recurrence.next_after(after)
    while instant is not None:
        yield instant
        instant = recurrence.next_after(instant)


def local_day(expression: str, zone: str, day: date) -> list[str]:
    """The instants of one local day as local times with their offsets."""
    info = ZoneInfo(zone)
    midnight = datetime(day.year, day.month, day.day, tzinfo=info).astimezone(UTC)
    recurrence = parse(expression=expression, zone=zone)
    shown = (instant.astimezone(info) for instant in walk(recurrence, midnight - RESOLUTION))
    return [f"{local:%H:%M%z}" for local in takewhile(lambda local: local.date() <= day, shown)]


@lru_cache
def days_of_shifts(zone: str) -> list[datetime]:
    info = ZoneInfo(zone)
    days = [datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(365 * 3)]
    shifted = [b for a, b in pairwise(days) if a.astimezone(info).utcoffset() != b.astimezone(info).utcoffset()]
    return shifted or days[:1]


@st.composite
def cron_field(draw: st.DrawFn, low: int, high: int) -> str:
    a, b = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
    step = draw(st.integers(1, high))
    return draw(st.sampled_from(["*", f"*/{step}", f"{a}", f"{a}-{b}", f"{a},{b}", f"{a}-{b}/{step}"]))


def crons() -> st.SearchStrategy[str]:
    day = st.just("*") | cron_field(1, 31)
    weekday = st.just("*") | cron_field(0, 7)
    hour = cron_field(0, 5) | cron_field(0, 23)
    return st.tuples(cron_field(0, 59), hour, day, st.just("*"), weekday).map(" ".join)


@st.composite
def moments_near_shifts(draw: st.DrawFn, zones: list[str]) -> tuple[str, datetime]:
    zone = draw(st.sampled_from(zones))
    seconds = draw(st.integers(-36 * 3600, 12 * 3600))
    return zone, draw(st.sampled_from(days_of_shifts(zone))) + timedelta(seconds=seconds)


def minute_scan(expression: str, zone: str, start: datetime, hours: int) -> list[datetime]:
    """The rule itself, minute by minute: no arithmetic with offsets, so it shares no mistake with the code."""
    info = ZoneInfo(zone)
    begin = start.replace(second=0, microsecond=0) - timedelta(days=2)
    minutes = [begin + n * MINUTE for n in range((48 + hours) * 60)]
    shown = [(t, t.astimezone(info).replace(tzinfo=None)) for t in minutes]
    end = max(wall for _, wall in shown)
    matching = set(takewhile(lambda wall: wall <= end, CronSim(expression, shown[0][1])))
    by_elapsed_time = any(field.startswith("*") for field in expression.split()[:2])
    found = []
    highest = shown[0][1]
    for t, wall in shown:
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
    def test_is_the_set_a_scan_of_every_minute_finds(
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
        # From a moment that clocks show once; inside a fold cronsim may answer with a time that has passed.
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

    def test_a_start_in_the_second_pass_of_a_fold_never_answers_with_the_first(self) -> None:
        second_pass = at("2026-11-01T01:40:00-05:00")
        recurrence = parse(expression="50 1 * * *", zone="America/New_York")
        assert recurrence.next_after(second_pass) == at("2026-11-02T01:50:00-05:00")

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
    def test_start_and_end_belong_to_it(self, kind: str, expression: str) -> None:
        bound = at("2026-01-01T00:10:00Z")
        recurrence = parse(kind, expression, starts_at=bound, ends_at=bound)
        assert list(walk(recurrence, EPOCH)) == [bound]

    def test_results_are_in_utc(self, kind: str, expression: str) -> None:
        recurrence = parse(kind, expression, zone="Asia/Tokyo", starts_at=at("2026-01-01T00:00:00+09:00"))
        instant = recurrence.next_after(at("2026-01-01T00:01:00+01:00"))
        assert instant is not None
        assert instant.tzinfo is UTC
        assert recurrence.starts_at.tzinfo is UTC


REFUSED = {
    "cron": [
        "", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *",
        "5-1 * * * *", "@reboot", "@hourly x", "a b c d e", "* * * * MON#6", "1;2 * * * *", "\u0661 * * * *",
        "* * * * *\0", "0 0 30 2 *", "0 0 31 4,6 *", "0 0 */29 2 MON#5", "*," * 127 + "* * * * *",
    ],
    "every": [
        "", "0", "0.5", "0.999999", "-1", "+5", "nan", "inf", "1e3", "1_000", " 5", "5s", "1.0000001", "\u0665",
        "999999999999", "9" * 200, "315619201",
    ],
    "at": [
        "", "tomorrow", "2026-01-01", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z", "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z",
    ],
}  # fmt: skip


class TestParsing:
    @pytest.mark.parametrize(("kind", "expression"), [(kind, text) for kind in REFUSED for text in REFUSED[kind]])
    def test_refuses_expressions(self, kind: str, expression: str) -> None:
        self.refused("expression", kind=kind, expression=expression)

    @pytest.mark.parametrize("expression", ["1", "1.0", "1.5", "1.5000000000", "30", "315619200"])
    def test_accepts_every(self, expression: str) -> None:
        first, second = islice(walk(parse("every", expression), EPOCH - MINUTE), 2)
        assert second - first == timedelta(seconds=float(expression))

    def test_keeps_an_instant_in_utc(self) -> None:
        assert parse("at", "2026-05-01T12:00:00+02:00").expression == "2026-05-01T10:00:00+00:00"

    @pytest.mark.parametrize(
        "zone",
        ["", "../etc", "/etc/localtime", "../../etc/passwd", "Europe", "Europe/", "europe/paris", "Mars/Base",
         "localtime", "Factory", "posixrules", "right/UTC", "tzdata.zi", "UTC\0", "\ud800", "+01:00"],
    )  # fmt: skip
    def test_refuses_time_zones(self, zone: str) -> None:
        self.refused("timezone", zone=zone)

    def test_refuses_what_cannot_be(self) -> None:
        self.refused("kind", kind="sometimes")
        self.refused("starts_at", starts_at=datetime(2026, 1, 1))  # noqa: DTZ001
        self.refused("ends_at", ends_at=datetime(2026, 1, 1))  # noqa: DTZ001
        self.refused("starts_at", starts_at=datetime(9999, 12, 31, tzinfo=UTC))
        self.refused("ends_at", starts_at=EPOCH + MINUTE, ends_at=EPOCH)

    def test_refuses_what_would_never_fire(self) -> None:
        self.refused("expression", expression="0 3 * * *", ends_at=EPOCH + timedelta(hours=2))
        self.refused("expression", kind="at", expression="2026-01-01T00:00:00Z", starts_at=at("2026-01-02T00:00:00Z"))

    @fast
    @given(
        st.sampled_from([*Kind, "?"]),
        st.text(max_size=30) | st.text("0123456789*/,-#LW@ ", max_size=30) | crons(),
        st.sampled_from(ODD_ZONES) | st.text(max_size=12),
        st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-14)), timezone(timedelta(hours=14))])),
    )
    def test_any_input_is_refused_or_fires(self, kind: str, expression: str, zone: str, starts_at: datetime) -> None:
        try:
            recurrence = parse(kind, expression, zone, starts_at)
        except InvalidInput:
            return
        first = recurrence.next_after(EPOCH)
        assert first is not None
        assert first >= starts_at

    def refused(self, field: str, **arguments: object) -> None:
        with pytest.raises(InvalidInput) as caught:
            parse(**arguments)  # type: ignore[arg-type]
        assert caught.value.field == field
        assert caught.value.message.endswith(".")


class TestDueInstants:
    start = at("2026-03-28T00:00:00Z")
    recurrences = (
        parse("every", "61.25", starts_at=start, ends_at=at("2026-03-29T06:00:00Z")),
        parse("cron", "*/7 * * * *", "Europe/Paris", start),
        parse("at", "2026-03-28T12:00:00Z"),
    )

    @fast
    @given(st.sampled_from(recurrences), st.integers(0, 2 * 86_400), st.integers(1, 400))
    def test_batches_join_without_gap_or_repetition(self, recurrence: Recurrence, seconds: int, limit: int) -> None:
        now = self.start + timedelta(seconds=seconds)
        joined: list[datetime] = []
        following = recurrence.next_after(self.start)
        while following is not None and following <= now:
            batch, following = due_instants(recurrence, following, now, limit)
            assert 1 <= len(batch) <= limit
            joined += batch
        assert joined == list(takewhile(lambda instant: instant <= now, walk(recurrence, self.start)))
        assert following == recurrence.next_after(now)

    def test_includes_the_first_even_off_the_grid_and_only_what_is_due(self) -> None:
        recurrence, first = parse("every", "60"), EPOCH + timedelta(seconds=5)
        assert due_instants(recurrence, first, first - RESOLUTION, 10) == ([], first)
        assert due_instants(recurrence, first, first, 10) == ([first], EPOCH + MINUTE)
        assert due_instants(recurrence, first, EPOCH + MINUTE, 10) == ([first, EPOCH + MINUTE], EPOCH + 2 * MINUTE)


class TestJitter:
    @fast
    @given(st.uuids(), instants, st.floats(0, 86_400))
    def test_is_fixed_and_within_bounds(self, schedule: UUID, instant: datetime, jitter: float) -> None:
        fire_at = jittered(schedule, instant, jitter)
        assert fire_at == jittered(schedule, instant.astimezone(timezone(timedelta(hours=9))), jitter)
        assert instant <= fire_at
        assert fire_at == instant or fire_at < instant + timedelta(seconds=jitter)

    def test_spreads_over_schedules_and_instants(self) -> None:
        minutes = [EPOCH + n * MINUTE for n in range(1000)]
        delays = [(jittered(UUID(int=1), instant, 60) - instant).total_seconds() for instant in minutes]
        assert len(set(delays)) > 990
        quarters = [sum(low <= delay < low + 15 for delay in delays) for low in (0, 15, 30, 45)]
        assert min(quarters) > 190
        assert delays != [(jittered(UUID(int=2), instant, 60) - instant).total_seconds() for instant in minutes]


class TestSettle:
    now = EPOCH + timedelta(days=1)

    def settled(
        self, *ages: float, policy: CatchUp, window: float | None = None, grace: float = 10, more_due: bool = False
    ) -> str:
        """One letter an instant, oldest first: F(ires) or d(ropped)."""
        due = [self.now - timedelta(seconds=age) for age in ages]
        results = settle(
            due, now=self.now, more_due=more_due, policy=policy, window_seconds=window, grace_seconds=grace
        )
        assert [settled.instant for settled in results] == due
        return "".join("F" if settled.fires else "d" for settled in results)

    @pytest.mark.parametrize("policy", CatchUp)
    def test_what_is_at_most_the_grace_old_fires(self, policy: CatchUp) -> None:
        assert self.settled(10, 3, 0, policy=policy, window=0, more_due=True) == "FFF"

    def test_all_and_none(self) -> None:
        assert self.settled(300, 200, 100, policy=CatchUp.ALL) == "FFF"
        assert self.settled(300, 200, 100, policy=CatchUp.ALL, window=200) == "dFF"
        assert self.settled(300, 11, 10, policy=CatchUp.NONE) == "ddF"

    def test_latest(self) -> None:
        assert self.settled(300, 200, 100, policy=CatchUp.LATEST) == "ddF"
        assert self.settled(300, 200, 5, policy=CatchUp.LATEST) == "ddF"
        assert self.settled(300, 8, 5, policy=CatchUp.LATEST) == "dFF"
        assert self.settled(300, 200, 100, policy=CatchUp.LATEST, window=99) == "ddd"
        assert self.settled(300, 200, 100, policy=CatchUp.LATEST, more_due=True) == "ddd"

    @fast
    @given(st.lists(st.integers(0, 1000), unique=True), st.integers(1, 20), st.none() | st.integers(0, 500))
    def test_latest_decides_alike_however_the_instants_are_batched(
        self, ages: list[int], size: int, window: int | None
    ) -> None:
        ages.sort(reverse=True)
        batches = [ages[n : n + size] for n in range(0, len(ages), size)]
        in_batches = "".join(
            self.settled(*batch, policy=CatchUp.LATEST, window=window, more_due=batch is not batches[-1])
            for batch in batches
        )
        assert in_batches == self.settled(*ages, policy=CatchUp.LATEST, window=window)
