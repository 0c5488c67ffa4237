"""A leader lease has one holder at a time, and another one after it expires."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from jobs.db.leader_lease import acquire_leader_lease
from jobs.domain import limits
from jobs.models import BeatLease

pytestmark = pytest.mark.django_db


def test_only_the_first_acquires_the_lease() -> None:
    mine, yours = uuid4(), uuid4()
    assert acquire_leader_lease("sweep", mine)
    assert not acquire_leader_lease("sweep", yours)
    assert BeatLease.objects.get().holder == mine


def test_holder_renews_its_lease() -> None:
    mine = uuid4()
    acquire_leader_lease("sweep", mine)
    BeatLease.objects.update(lease_until=datetime.now(UTC) + timedelta(seconds=1))
    assert acquire_leader_lease("sweep", mine)
    left = (BeatLease.objects.get().lease_until - datetime.now(UTC)).total_seconds()
    assert limits.LEADER_LEASE_SECONDS - 2 < left <= limits.LEADER_LEASE_SECONDS


def test_expired_lease_passes_to_another_holder() -> None:
    mine, yours = uuid4(), uuid4()
    acquire_leader_lease("sweep", mine)
    BeatLease.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
    assert acquire_leader_lease("sweep", yours)
    assert not acquire_leader_lease("sweep", mine)


def test_leases_are_independent() -> None:
    assert acquire_leader_lease("sweep", uuid4())
    assert acquire_leader_lease("dust", uuid4())
