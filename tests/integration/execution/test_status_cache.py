"""The status cache: one read a second for any number of clients, nothing older and nothing forged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest
import redis
from pytest_django import Settings

from jobs.db import wakeups
from jobs.definitions import lifecycle
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, RunReport
from jobs.execution import status_cache
from jobs.execution.attempts import finish_attempt
from jobs.execution.dead_letters import dismiss_dead_letter
from jobs.execution.status_cache import CacheEntryKey, read_through, redis_key
from scheduler_project.localstack.engines.standalone import Engines
from tests.support.factories import make_execution, make_job, make_worker, run_on
from tests.support.waiting import wait_for


class Source:
    """Takes the place of Postgres: tests change the value that is read."""

    def __init__(self) -> None:
        self.reads = 0
        self.value = b"first"
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None

    def read(self) -> bytes:
        self.reads += 1
        self.before()
        value = self.value
        self.after()
        return value


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def entry() -> CacheEntryKey:
    return CacheEntryKey(uuid4(), "7")


@pytest.fixture(autouse=True)
def patient_redis(engines: Engines, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> wakeups.BestEffortRedis:
    """Our connection with a long timeout: a busy machine must not decide the outcome of a test."""
    patient_redis = wakeups.BestEffortRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=5)
    monkeypatch.setattr(status_cache, "best_effort_redis", lambda: patient_redis)
    return patient_redis


@pytest.fixture
def store(settings: Settings) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        yield client


@pytest.fixture
def unreachable(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> wakeups.BestEffortRedis:
    away = wakeups.BestEffortRedis("redis://127.0.0.1:1/0")
    monkeypatch.setattr(status_cache, "best_effort_redis", lambda: away)
    return away


def notify(entry: CacheEntryKey) -> None:
    """Invalidate as after a commit; most of these tests need no database."""
    status_cache._invalidate_and_notify([entry.execution_id])


def test_concurrent_readers_cost_one_read(entry: CacheEntryKey, source: Source) -> None:
    barrier = threading.Barrier(30)
    source.before = lambda: time.sleep(0.05)

    def ask(_: int) -> bytes:
        barrier.wait(10)
        return read_through(entry, source.read)

    with ThreadPoolExecutor(30) as pool:
        assert set(pool.map(ask, range(30))) == {b"first"}
    assert source.reads == 1


def test_concurrent_readers_of_an_expired_value_cost_one_read(
    entry: CacheEntryKey, source: Source, store: redis.Redis
) -> None:
    """The second ends between Redis's answer and ours, for a thread that had to wait for the CPU."""
    old = status_cache._sign(entry, b"old", time.time() - 2)
    store.hset(entry.key, mapping={"epoch": "e", f"v:{entry.viewpoint}": old})
    barrier = threading.Barrier(30)
    source.before = lambda: time.sleep(0.05)

    def ask(_: int) -> bytes:
        barrier.wait(10)
        return read_through(entry, source.read)

    with ThreadPoolExecutor(30) as pool:
        assert set(pool.map(ask, range(30))) == {b"first"}
    assert source.reads == 1


def test_change_is_visible_within_a_second(entry: CacheEntryKey, source: Source) -> None:
    began = time.monotonic()
    assert read_through(entry, source.read) == b"first"
    source.value = b"second"
    assert read_through(entry, source.read) == b"first"
    assert source.reads == 1
    wait_for(lambda: read_through(entry, source.read) == b"second", "the change is seen", seconds=5)
    assert 0.9 < time.monotonic() - began < 1.5
    assert source.reads == 2


def test_notified_change_is_visible_at_once(entry: CacheEntryKey, source: Source) -> None:
    read_through(entry, source.read)
    source.value = b"second"
    notify(entry)
    assert read_through(entry, source.read) == b"second"


def test_value_read_before_a_notified_change_is_not_stored(entry: CacheEntryKey, source: Source) -> None:
    """A slow reader has its answer, the execution changes, and only then the answer is stored."""
    source.after = lambda: notify(entry)
    assert read_through(entry, source.read) == b"first"
    source.value, source.after = b"second", lambda: None
    assert read_through(entry, source.read) == b"second"


def test_value_read_more_than_a_second_ago_is_not_stored(
    entry: CacheEntryKey, source: Source, store: redis.Redis, settings: Settings
) -> None:
    settings.PUNCTUAL_STATUS_CACHE_SECONDS = 0.05
    source.after = lambda: wait_for(lambda: not store.exists(redis_key(entry.execution_id)), "its second to end")
    assert read_through(entry, source.read) == b"first"
    assert not store.exists(redis_key(entry.execution_id))


def test_each_viewpoint_has_its_own_value(entry: CacheEntryKey, source: Source) -> None:
    read_through(entry, source.read)
    source.value = b"for another"
    assert read_through(CacheEntryKey(entry.execution_id, "staff"), source.read) == b"for another"
    assert read_through(entry, source.read) == b"first"


def test_dead_loader_delays_the_others_only_briefly(
    entry: CacheEntryKey, source: Source, patient_redis: wakeups.BestEffortRedis
) -> None:
    patient_redis.run_script(status_cache.LOOKUP_SCRIPT, entry.key, entry.viewpoint, "dead", 1000, 250)
    began = time.monotonic()
    assert read_through(entry, source.read) == b"first"
    assert 0.2 < time.monotonic() - began < 0.6


def test_failing_loader_delays_no_other(entry: CacheEntryKey, source: Source) -> None:
    def fail() -> None:
        raise LookupError

    source.before = fail
    with pytest.raises(LookupError):
        read_through(entry, source.read)
    source.before = lambda: None
    began = time.monotonic()
    assert read_through(entry, source.read) == b"first"
    assert time.monotonic() - began < 0.2


@pytest.mark.parametrize("change", ["forged", "cut", "of another", "old"])
def test_forged_or_expired_value_is_not_served(
    entry: CacheEntryKey, source: Source, store: redis.Redis, change: str
) -> None:
    read_through(entry, source.read)
    field = f"v:{entry.viewpoint}"
    kept = store.hget(entry.key, field)
    assert isinstance(kept, bytes)
    put = {
        "forged": kept[:-1] + b"?",
        "cut": kept[:20],
        "of another": status_cache._sign(CacheEntryKey(UUID(int=1), entry.viewpoint), b"another's", time.time()),
        "old": status_cache._sign(entry, b"old", time.time() - 1.1),
    }
    store.hset(entry.key, field, put[change])
    store.persist(entry.key)
    for _ in range(3):
        assert read_through(entry, source.read) == b"first"
    assert source.reads == 2, "the reader that found it reads, and the new value is stored"


def test_key_of_another_type_is_ignored(entry: CacheEntryKey, source: Source, store: redis.Redis) -> None:
    store.set(entry.key, "nonsense", px=2000)
    assert read_through(entry, source.read) == b"first"


def test_without_redis_each_process_caches_for_itself(
    entry: CacheEntryKey, source: Source, unreachable: wakeups.BestEffortRedis
) -> None:
    began = time.monotonic()
    for _ in range(20):
        assert read_through(entry, source.read) == b"first"
    assert time.monotonic() - began < 0.5
    assert (source.reads, unreachable.errors) == (1, 1)
    source.value = b"second"
    notify(entry)
    assert read_through(entry, source.read) == b"second"
    source.value = b"third"
    wait_for(lambda: read_through(entry, source.read) == b"third", "it is seen within the second", seconds=5)
    assert time.monotonic() - began < 2


@pytest.mark.django_db
def test_uncommitted_changes_are_not_cached(entry: CacheEntryKey, source: Source, store: redis.Redis) -> None:
    """This test is a transaction."""
    assert read_through(entry, source.read) == b"first"
    source.value = b"second"
    assert read_through(entry, source.read) == b"second"
    assert not store.exists(entry.key)


def test_cache_can_be_turned_off(entry: CacheEntryKey, source: Source, settings: Settings) -> None:
    settings.PUNCTUAL_STATUS_CACHE_SECONDS = 0
    assert [read_through(entry, source.read) for _ in range(3)] == [b"first"] * 3
    assert source.reads == 3


@pytest.mark.django_db(transaction=True)
def test_outcomes_and_commands_are_visible_at_once(source: Source) -> None:
    worker, job = make_worker(), make_job(max_concurrency=None)
    held = [run_on(worker, make_execution(job=job)) for _ in range(4)]
    orders: list[tuple[AttemptFence, Callable[[UUID], object]]] = [
        (held[0], lambda _: finish_attempt(held[0], RunReport(Reason.EXIT, exit_code=0))),
        (held[1], lambda _: finish_attempt(held[1], RunReport(Reason.EXIT, exit_code=1))),
        (held[1], lambda execution: dismiss_dead_letter(execution, by="ann")),
        (held[2], lambda execution: lifecycle.cancel_execution(execution, by="ann")),
        (held[3], lambda _: lifecycle.cancel_job(job.id, by="ann")),
    ]
    for number, (hold, order) in enumerate(orders):
        entry = CacheEntryKey(hold.execution_id, "7")
        source.value = f"before {number}".encode()
        assert read_through(entry, source.read) == source.value
        source.value = b"after"
        order(hold.execution_id)
        assert read_through(entry, source.read) == source.value, number
        notify(entry)
