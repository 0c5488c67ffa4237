"""Ids tell when they were made: a moment is a bound of ids, whatever moment it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from jobs.models.ids import CLOCKS_DIFFER, first_id, first_id_about

NOW = datetime(2026, 11, 17, tzinfo=UTC)


@pytest.mark.parametrize("shift", [CLOCKS_DIFFER, -CLOCKS_DIFFER, timedelta(hours=2)])
def test_a_moment_is_moved(shift: timedelta) -> None:
    assert first_id_about(NOW, shift) == first_id(NOW + shift)


@pytest.mark.parametrize("moment", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_a_moment_that_no_id_can_tell_is_no_failure(moment: datetime) -> None:
    for shift in (timedelta(days=-1), timedelta(days=1)):
        bound = first_id_about(moment, shift)
        assert (bound < first_id(NOW)) is (moment < NOW)
        assert UUID(int=0) < bound < UUID(int=2**128 - 1)
