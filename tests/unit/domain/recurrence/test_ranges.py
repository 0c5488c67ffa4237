"""Ranges of instants: batches and counts agree with single steps."""

from datetime import date, datetime, timedelta
from itertools import takewhile
from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.recurrence import (
    Kind,
    Recurrence,
    count_instants,
    find_due_instants,
    find_last_instant,
    find_nth_instant,
    instants_between,
)
from tests.unit.domain.recurrence.recurrences import (
    EPOCH,
    MINUTE,
    ODD_ZONES,
    PLAIN_ZONES,
    RESOLUTION,
    at,
    crons,
    fast,
    parse,
    slow,
    walk,
)


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
            batch, following = find_due_instants(recurrence, following, now, limit)
            assert 1 <= len(batch) <= limit
            joined += batch
        assert joined == list(takewhile(lambda instant: instant <= now, walk(recurrence, self.start)))
        assert following == recurrence.next_after(now)

    def test_includes_the_first_even_off_the_grid_and_only_what_is_due(self) -> None:
        recurrence, first = parse("every", "60"), EPOCH + timedelta(seconds=5)
        assert find_due_instants(recurrence, first, first - RESOLUTION, 10) == ([], first)
        assert find_due_instants(recurrence, first, first, 10) == ([first], EPOCH + MINUTE)
        assert find_due_instants(recurrence, first, EPOCH + MINUTE, 10) == ([first, EPOCH + MINUTE], EPOCH + 2 * MINUTE)


class TestCount:
    begin = at("2026-03-26T00:00:00Z")

    @fast
    @given(
        st.integers(10**9, 10**11),
        st.sampled_from(PLAIN_ZONES + ODD_ZONES),
        st.frozensets(st.integers(0, 12)),
        st.tuples(st.integers(-(10**6), 10**6), st.integers(0, 10**6)),
        st.none() | st.integers(0, 10**6),
    )
    def test_interval_count_equals_iteration(
        self, every_us: int, zone: str, days: frozenset[int], bounds: tuple[int, int], ends: int | None
    ) -> None:
        excluded = frozenset((self.begin + timedelta(days=day)).date() for day in days)
        ends_at = None if ends is None else self.begin + timedelta(seconds=ends)
        expression = f"{every_us // 10**6}.{every_us % 10**6:06}"
        recurrence = Recurrence(Kind.EVERY, expression, zone, self.begin, ends_at, excluded)
        start = self.begin + timedelta(seconds=bounds[0])
        until = start + timedelta(seconds=bounds[1])
        assert count_instants(recurrence, start, until) == sum(1 for _ in instants_between(recurrence, start, until))

    def test_interval_count_is_arithmetic(self) -> None:
        holidays = [date(year, 1, 1) for year in range(1970, 2100)]
        recurrence = parse("every", "1", excluded=holidays)
        century = at("2070-01-01T00:00:00Z")
        assert count_instants(recurrence, EPOCH, century) == (36525 - 101) * 86_400 + 86_400
        assert count_instants(recurrence, century, EPOCH) == 0

    def test_adjacent_ranges_neither_share_nor_lose_instants(self) -> None:
        recurrence, middle = parse(expression="0 */6 * * *"), at("2026-01-02T06:00:00Z")
        day = timedelta(days=1)
        whole = list(instants_between(recurrence, middle - day, middle + day))
        parts = [
            *instants_between(recurrence, middle - day, middle),
            *instants_between(recurrence, middle, middle + day),
        ]
        assert parts == whole
        assert len(whole) == count_instants(recurrence, middle - day, middle + day) == 8


class TestSkipping:
    """Searches without iteration agree with iteration."""

    begin = at("2026-03-26T00:00:00Z")

    @slow
    @given(
        crons(),
        st.sampled_from(PLAIN_ZONES + ODD_ZONES),
        st.frozensets(st.integers(0, 60)),
        st.tuples(st.integers(0, 5 * 10**6), st.integers(0, 5 * 10**6)),
    )
    def test_cron_count_equals_iteration(
        self, expression: str, zone: str, days: frozenset[int], bounds: tuple[int, int]
    ) -> None:
        excluded = frozenset((self.begin + timedelta(days=day)).date() for day in days)
        recurrence = Recurrence(Kind.CRON, expression, zone, self.begin, None, excluded)
        start = self.begin + timedelta(seconds=bounds[0])
        until = start + timedelta(seconds=bounds[1], microseconds=bounds[0])
        assert count_instants(recurrence, start, until) == sum(1 for _ in instants_between(recurrence, start, until))

    def test_cron_count_across_a_skipped_day(self) -> None:
        start, until = at("2011-12-20T00:00:00Z"), at("2012-01-10T00:00:00Z")
        for expression in ("0 12 * * *", "*/7 * * * *", "30 0 * * *", "59 23 30 12 *"):
            recurrence = parse("cron", expression, "Pacific/Apia", EPOCH)
            walked = sum(1 for _ in instants_between(recurrence, start, until))
            assert count_instants(recurrence, start, until) == walked

    def test_years_of_minutes_are_counted_quickly(self) -> None:
        recurrence, now = parse("cron", "* * * * *", "UTC", EPOCH), at("2030-01-01T00:00:30Z")
        started = perf_counter()
        assert count_instants(recurrence, EPOCH, now) == 60 * 365 * 1440 + 15 * 1440
        assert find_last_instant(recurrence, EPOCH, now) == (at("2030-01-01T00:00:00Z"), at("2030-01-01T00:01:00Z"))
        assert find_nth_instant(recurrence, EPOCH, 10**7 + 1, now) == EPOCH + 10**7 * MINUTE
        assert perf_counter() - started < 5, "iteration takes minutes"

    @fast
    @given(st.sampled_from(TestDueInstants.recurrences), st.integers(0, 2 * 86_400), st.integers(1, 400))
    def test_last_and_nth_equal_iteration(self, recurrence: Recurrence, seconds: int, number: int) -> None:
        start = TestDueInstants.start
        first, until = recurrence.next_after(start), start + timedelta(seconds=seconds)
        assert first is not None
        walked = [first, *instants_between(recurrence, first, until)]
        nth = walked[number - 1] if number <= len(walked) else None
        assert find_nth_instant(recurrence, first, number, max(first, until)) == nth
        if first <= until:
            assert find_last_instant(recurrence, first, until) == (walked[-1], recurrence.next_after(until))
