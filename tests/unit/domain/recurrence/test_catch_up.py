"""Jitter and catch-up of due instants."""

from datetime import datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.recurrence import CatchUp, add_jitter, decide_catch_up
from tests.unit.domain.recurrence.recurrences import EPOCH, MINUTE, fast, instants


class TestJitter:
    @fast
    @given(st.uuids(), instants, st.floats(0, 86_400))
    def test_is_fixed_and_within_bounds(self, schedule: UUID, instant: datetime, jitter: float) -> None:
        fire_at = add_jitter(schedule, instant, jitter)
        assert fire_at == add_jitter(schedule, instant.astimezone(timezone(timedelta(hours=9))), jitter)
        assert instant <= fire_at
        assert fire_at == instant or fire_at < instant + timedelta(seconds=jitter)

    def test_spreads_over_schedules_and_instants(self) -> None:
        minutes = [EPOCH + n * MINUTE for n in range(1000)]
        delays = [(add_jitter(UUID(int=1), instant, 60) - instant).total_seconds() for instant in minutes]
        assert len(set(delays)) > 990
        quarters = [sum(low <= delay < low + 15 for delay in delays) for low in (0, 15, 30, 45)]
        assert min(quarters) > 190
        assert delays != [(add_jitter(UUID(int=2), instant, 60) - instant).total_seconds() for instant in minutes]


class TestCatchUp:
    now = EPOCH + timedelta(days=1)

    def settled(
        self, *ages: float, policy: CatchUp, window: float | None = None, grace: float = 10, more_due: bool = False
    ) -> str:
        """Return one letter per instant, oldest first: F(ires) or d(ropped)."""
        due = [self.now - timedelta(seconds=age) for age in ages]
        results = decide_catch_up(
            due, now=self.now, more_due=more_due, policy=policy, window_seconds=window, grace_seconds=grace
        )
        assert [settled.instant for settled in results] == due
        return "".join("F" if settled.fires else "d" for settled in results)

    @pytest.mark.parametrize("policy", CatchUp)
    def test_instant_within_the_grace_period_fires(self, policy: CatchUp) -> None:
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
    def test_latest_is_independent_of_batches(self, ages: list[int], size: int, window: int | None) -> None:
        ages.sort(reverse=True)
        batches = [ages[n : n + size] for n in range(0, len(ages), size)]
        in_batches = "".join(
            self.settled(*batch, policy=CatchUp.LATEST, window=window, more_due=batch is not batches[-1])
            for batch in batches
        )
        assert in_batches == self.settled(*ages, policy=CatchUp.LATEST, window=window)
