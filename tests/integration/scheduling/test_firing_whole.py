"""Firing is one transaction: a schedule that cannot be advanced does not fire."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError, connection

from jobs.models import DroppedRange, Execution, Schedule
from jobs.scheduling.firing import fire_due_schedules
from tests.support.factories import make_schedule

pytestmark = pytest.mark.django_db(transaction=True)

REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no advance today'; END $$;
CREATE TRIGGER refused BEFORE UPDATE ON jobs_schedule FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@pytest.fixture
def late_schedule() -> Schedule:
    """Create a schedule with one instant to fire and enough missed ones for a dropped range."""
    now = datetime.now(UTC)
    return make_schedule(starts_at=now - timedelta(minutes=30.5), next_instant=now - timedelta(minutes=30.5))


@pytest.fixture
def advance_refused(late_schedule: Schedule) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(REFUSE)
    try:
        yield
    finally:
        allow_advance()


def allow_advance() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER IF EXISTS refused ON jobs_schedule; DROP FUNCTION IF EXISTS refuse()")


def test_schedule_that_cannot_advance_does_not_fire(late_schedule: Schedule, advance_refused: None) -> None:
    with pytest.raises(DatabaseError, match="no advance today"):
        fire_due_schedules()
    assert not Execution.objects.exists()
    assert not DroppedRange.objects.exists()

    allow_advance()
    assert fire_due_schedules().fired == 1
    assert Execution.objects.count() == DroppedRange.objects.count() == 1
