"""Rate limits: a bucket admits its size under concurrency, refills, and is skipped without Redis."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
import redis
from django.core.exceptions import ValidationError
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from jobs.access import rate_limit
from jobs.access.rate_limit import count_address_request, read_request_limit
from jobs.db import wakeups
from jobs.models import OwnerQuota
from scheduler_project.localstack.engines.standalone import Engines
from tests.support.factories import make_user
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def _patient_redis(engines: Engines, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    redis_with_timeout = wakeups.BestEffortRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=5)
    monkeypatch.setattr(rate_limit, "best_effort_redis", lambda: redis_with_timeout)


@pytest.fixture
def store(settings: Settings) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        yield client


@pytest.fixture
def address() -> str:
    return uuid4().hex


def is_admitted(address: str) -> bool:
    status = count_address_request(address)
    assert status is not None
    return status.admitted


def test_concurrent_requests_are_admitted_up_to_the_limit(address: str, settings: Settings) -> None:
    settings.PUNCTUAL_REQUESTS_PER_MINUTE = 7
    with ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(is_admitted, [address] * 100)) == 7
    refused = count_address_request(address)
    assert refused is not None
    assert (refused.limit, refused.remaining) == (7, 0)
    assert 1 <= refused.retry_seconds <= 9
    assert 50 < refused.reset_seconds <= 60
    assert is_admitted(uuid4().hex)


def test_bucket_refills_evenly(address: str, settings: Settings, store: redis.Redis) -> None:
    """600 per minute admit one every tenth of a second."""
    settings.PUNCTUAL_REQUESTS_PER_MINUTE = 600
    store.set(f"punctual:requests:address:{address}", int((time.time() + 60) * 1e6))
    began = time.monotonic()
    wait_for(lambda: is_admitted(address), "the first is admitted", seconds=5)
    wait_for(lambda: is_admitted(address), "the second is admitted", seconds=5)
    assert 0.1 < time.monotonic() - began < 1


@pytest.mark.parametrize("value", ["nonsense", "9" * 30, "-1", "nan"])
def test_invalid_value_in_redis_is_replaced(address: str, settings: Settings, store: redis.Redis, value: str) -> None:
    settings.PUNCTUAL_REQUESTS_PER_MINUTE = 6000
    store.set(f"punctual:requests:address:{address}", value)
    wait_for(lambda: is_admitted(address), "it is admitted", seconds=5)


def test_no_limit_applies_without_redis(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unreachable = wakeups.BestEffortRedis("redis://127.0.0.1:1/0")
    monkeypatch.setattr(rate_limit, "best_effort_redis", lambda: unreachable)
    began = time.monotonic()
    assert [count_address_request(address) for _ in range(50)] == [None] * 50
    assert time.monotonic() - began < 0.5
    assert unreachable.errors == 1


@pytest.mark.django_db
def test_owner_limit_is_cached(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PUNCTUAL_REQUESTS_PER_MINUTE = 5
    ordinary, other, free = (make_user() for _ in range(3))
    OwnerQuota.objects.create(owner=other, requests_per_minute=9)
    OwnerQuota.objects.create(owner=free, requests_per_minute=0)
    with CaptureQueriesContext(connection) as queries:
        for _ in range(5):
            assert [read_request_limit(user.pk) for user in (ordinary, other, free)] == [5, 9, 0]
    assert len(queries) == 3
    OwnerQuota.objects.filter(owner=other).update(requests_per_minute=None)
    monkeypatch.setattr(rate_limit, "LIMIT_CACHE_SECONDS", 0)

    assert read_request_limit(other.pk) == 5


@pytest.mark.parametrize("limit", [60_000_001, 2_147_483_647])
def test_limit_above_one_request_per_microsecond_admits(address: str, settings: Settings, limit: int) -> None:
    settings.PUNCTUAL_REQUESTS_PER_MINUTE = limit
    assert is_admitted(address)


@pytest.mark.django_db
def test_owner_limit_is_bounded() -> None:
    quota = OwnerQuota(owner=make_user(), requests_per_minute=10**6 + 1)
    with pytest.raises(ValidationError, match="1000000"):
        quota.full_clean()
    quota.save()
    assert read_request_limit(quota.owner_id) == 10**6
