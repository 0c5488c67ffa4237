"""Of a bucket nobody takes more than it holds, however many take at once; it fills up again, and needs no Redis."""

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

from jobs import wakeups
from jobs.models import OwnerQuota
from jobs.services import rate_limit
from jobs.services.rate_limit import limit_of, take_for_address
from scheduler_project.embedded.engines import Engines
from tests.factories import make_user
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def _patient_redis(engines: Engines, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = wakeups.HurriedRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=5)
    monkeypatch.setattr(rate_limit, "hurried_redis", lambda: patient)


@pytest.fixture
def store(settings: Settings) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        yield client


@pytest.fixture
def who() -> str:
    return uuid4().hex


def is_admitted(who: str) -> bool:
    standing = take_for_address(who)
    assert standing is not None
    return standing.admitted


def test_many_at_once_take_exactly_what_there_is(who: str, settings: Settings) -> None:
    settings.PUNCTUAL_REQUESTS_PER_MINUTE = 7
    with ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(is_admitted, [who] * 100)) == 7
    refused = take_for_address(who)
    assert refused is not None
    assert (refused.limit, refused.remaining) == (7, 0)
    assert 1 <= refused.retry_seconds <= 9
    assert 50 < refused.reset_seconds <= 60
    assert is_admitted(uuid4().hex)


def test_it_fills_up_evenly(who: str, settings: Settings, store: redis.Redis) -> None:
    """Of 600 a minute one comes every tenth of a second."""
    settings.PUNCTUAL_REQUESTS_PER_MINUTE = 600
    store.set(f"punctual:requests:address:{who}", int((time.time() + 60) * 1e6))
    began = time.monotonic()
    wait_for(lambda: is_admitted(who), "there is one again", seconds=5)
    wait_for(lambda: is_admitted(who), "and another one", seconds=5)
    assert 0.1 < time.monotonic() - began < 1


@pytest.mark.parametrize("value", ["nonsense", "9" * 30, "-1", "nan"])
def test_nonsense_in_redis_keeps_nobody_out_for_long(
    who: str, settings: Settings, store: redis.Redis, value: str
) -> None:
    settings.PUNCTUAL_REQUESTS_PER_MINUTE = 6000
    store.set(f"punctual:requests:address:{who}", value)
    wait_for(lambda: is_admitted(who), "it is admitted", seconds=5)


def test_without_redis_nobody_is_counted_and_nobody_waits(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    away = wakeups.HurriedRedis("redis://127.0.0.1:1/0")
    monkeypatch.setattr(rate_limit, "hurried_redis", lambda: away)
    began = time.monotonic()
    assert [take_for_address(who) for _ in range(50)] == [None] * 50
    assert time.monotonic() - began < 0.5
    assert away.errors == 1


@pytest.mark.django_db
def test_an_owner_may_have_another_limit_which_costs_no_query_each_time(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PUNCTUAL_REQUESTS_PER_MINUTE = 5
    ordinary, other, free = (make_user() for _ in range(3))
    OwnerQuota.objects.create(owner=other, requests_per_minute=9)
    OwnerQuota.objects.create(owner=free, requests_per_minute=0)
    with CaptureQueriesContext(connection) as queries:
        for _ in range(5):
            assert [limit_of(user.pk) for user in (ordinary, other, free)] == [5, 9, 0]
    assert len(queries) == 3
    OwnerQuota.objects.filter(owner=other).update(requests_per_minute=None)
    monkeypatch.setattr(rate_limit, "LIMIT_KEPT_SECONDS", 0)
    rate_limit._limits.clear()
    assert limit_of(other.pk) == 5


@pytest.mark.parametrize("limit", [60_000_001, 2_147_483_647])
def test_a_limit_beyond_every_clock_is_kept_all_the_same(who: str, settings: Settings, limit: int) -> None:
    settings.PUNCTUAL_REQUESTS_PER_MINUTE = limit
    assert is_admitted(who)


@pytest.mark.django_db
def test_an_owners_limit_is_bounded() -> None:
    quota = OwnerQuota(owner=make_user(), requests_per_minute=10**6 + 1)
    with pytest.raises(ValidationError, match="1000000"):
        quota.full_clean()
    quota.save()
    assert limit_of(quota.owner_id) == 10**6
