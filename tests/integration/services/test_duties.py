"""A duty has one holder at a time, and another once its lease has ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from jobs import conf
from jobs.models import BeatLease
from jobs.services.duties import hold_duty

pytestmark = pytest.mark.django_db


def test_the_first_takes_it_and_the_second_does_not_get_it() -> None:
    mine, yours = uuid4(), uuid4()
    assert hold_duty("sweep", mine)
    assert not hold_duty("sweep", yours)
    assert BeatLease.objects.get().holder == mine


def test_the_holder_renews() -> None:
    mine = uuid4()
    hold_duty("sweep", mine)
    BeatLease.objects.update(lease_until=datetime.now(UTC) + timedelta(seconds=1))
    assert hold_duty("sweep", mine)
    left = (BeatLease.objects.get().lease_until - datetime.now(UTC)).total_seconds()
    assert conf.DUTY_LEASE_SECONDS - 2 < left <= conf.DUTY_LEASE_SECONDS


def test_after_its_end_another_takes_over_and_the_first_has_lost_it() -> None:
    mine, yours = uuid4(), uuid4()
    hold_duty("sweep", mine)
    BeatLease.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    assert hold_duty("sweep", yours)
    assert not hold_duty("sweep", mine)


def test_duties_are_held_apart() -> None:
    assert hold_duty("sweep", uuid4())
    assert hold_duty("dust", uuid4())
