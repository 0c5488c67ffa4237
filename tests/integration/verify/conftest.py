"""Fixtures of the audits of firings."""

from __future__ import annotations

import pytest

from jobs.models import Execution, Schedule
from tests.support.past_schedules import audit, fire_all, past_schedule


@pytest.fixture
def fired() -> Schedule:
    """A schedule with ten fired instants, one to ten minutes after its start."""
    schedule = past_schedule(10.5)
    fire_all()
    assert Execution.objects.count() == 10
    assert audit().clean
    return schedule
