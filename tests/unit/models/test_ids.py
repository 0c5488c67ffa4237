"""Ids encode their creation time, so that any time is a bound of ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from jobs.models.ids import MAX_CLOCK_SKEW, first_id, shifted_first_id

NOW = datetime(2026, 11, 17, tzinfo=UTC)


@pytest.mark.parametrize("shift", [MAX_CLOCK_SKEW, -MAX_CLOCK_SKEW, timedelta(hours=2)])
def test_time_is_shifted(shift: timedelta) -> None:
    assert shifted_first_id(NOW, shift) == first_id(NOW + shift)


@pytest.mark.parametrize("moment", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_time_outside_the_range_of_ids_is_clamped(moment: datetime) -> None:
    for shift in (timedelta(days=-1), timedelta(days=1)):
        bound = shifted_first_id(moment, shift)
        assert (bound < first_id(NOW)) is (moment < NOW)
        assert UUID(int=0) < bound < UUID(int=2**128 - 1)
