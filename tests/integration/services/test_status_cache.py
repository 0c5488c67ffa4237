"""However many ask, Postgres is asked once a second; and nothing that is served is older than that, or forged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest
import redis
from pytest_django import Settings

from jobs import wakeups
from jobs.protocol import Hold, Report
from jobs.services import commands, status_cache
from jobs.services.attempts import finish_attempt
from jobs.services.dead_letters import dismiss_dead_letter
from jobs.services.status_cache import Place, key_of, read_through
from jobs.states import Reason
from scheduler_project.embedded.engines import Engines
from tests.factories import make_execution, make_job, make_worker, run_on
from tests.waiting import wait_for


class Source:
    """Stands for Postgres: what is read changes whenever a test says so."""

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
def place() -> Place:
    return Place(uuid4(), "7")


@pytest.fixture(autouse=True)
def patient(engines: Engines, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> wakeups.HurriedRedis:
    """Ours, but for the hurry: a busy machine must not decide what a test sees."""
    patient = wakeups.HurriedRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=5)
    monkeypatch.setattr(status_cache, "hurried_redis", lambda: patient)
    return patient


@pytest.fixture
def store(settings: Settings) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        yield client


@pytest.fixture
def unreachable(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> wakeups.HurriedRedis:
    away = wakeups.HurriedRedis("redis://127.0.0.1:1/0")
    monkeypatch.setattr(status_cache, "hurried_redis", lambda: away)
    return away


def tell(place: Place) -> None:
    """As it is told once something is committed: most of this needs no database."""
    status_cache._tell([place.execution_id])


def test_many_at_once_cost_one_read(place: Place, source: Source) -> None:
    barrier = threading.Barrier(30)
    source.before = lambda: time.sleep(0.05)

    def ask(_: int) -> bytes:
        barrier.wait(10)
        return read_through(place, source.read)

    with ThreadPoolExecutor(30) as pool:
        assert set(pool.map(ask, range(30))) == {b"first"}
    assert source.reads == 1


def test_many_who_find_it_too_old_at_once_cost_one_read(place: Place, source: Source, store: redis.Redis) -> None:
    """As when its second ends between Redis's answer and ours, for a thread that had to wait for its turn."""
    old = status_cache._sealed(place, b"old", time.time() - 2)
    store.hset(place.key, mapping={"epoch": "e", f"v:{place.viewpoint}": old})
    barrier = threading.Barrier(30)
    source.before = lambda: time.sleep(0.05)

    def ask(_: int) -> bytes:
        barrier.wait(10)
        return read_through(place, source.read)

    with ThreadPoolExecutor(30) as pool:
        assert set(pool.map(ask, range(30))) == {b"first"}
    assert source.reads == 1


def test_a_change_is_seen_within_a_second_and_not_before_it_costs_a_read(place: Place, source: Source) -> None:
    began = time.monotonic()
    assert read_through(place, source.read) == b"first"
    source.value = b"second"
    assert read_through(place, source.read) == b"first"
    assert source.reads == 1
    wait_for(lambda: read_through(place, source.read) == b"second", "the change is seen", seconds=5)
    assert 0.9 < time.monotonic() - began < 1.5
    assert source.reads == 2


def test_what_is_told_is_seen_at_once(place: Place, source: Source) -> None:
    read_through(place, source.read)
    source.value = b"second"
    tell(place)
    assert read_through(place, source.read) == b"second"


def test_what_was_read_before_a_change_was_told_is_not_kept(place: Place, source: Source) -> None:
    """A slow reader: it has its answer, something changes, and only then it comes to keep it."""
    source.after = lambda: tell(place)
    assert read_through(place, source.read) == b"first"
    source.value, source.after = b"second", lambda: None
    assert read_through(place, source.read) == b"second"


def test_what_was_read_more_than_a_second_ago_is_not_kept(
    place: Place, source: Source, store: redis.Redis, settings: Settings
) -> None:
    settings.PUNCTUAL_STATUS_CACHE_SECONDS = 0.05
    source.after = lambda: wait_for(lambda: not store.exists(key_of(place.execution_id)), "its time is over")
    assert read_through(place, source.read) == b"first"
    assert not store.exists(key_of(place.execution_id))


def test_each_viewpoint_has_its_own(place: Place, source: Source) -> None:
    read_through(place, source.read)
    source.value = b"for another"
    assert read_through(Place(place.execution_id, "staff"), source.read) == b"for another"
    assert read_through(place, source.read) == b"first"


def test_one_who_reads_and_dies_holds_the_others_up_for_a_moment_only(
    place: Place, source: Source, patient: wakeups.HurriedRedis
) -> None:
    patient.run(status_cache.LOOK, place.key, place.viewpoint, "dead", 1000, 250)
    began = time.monotonic()
    assert read_through(place, source.read) == b"first"
    assert 0.2 < time.monotonic() - began < 0.6


def test_one_who_fails_to_read_holds_nobody_up(place: Place, source: Source) -> None:
    def fail() -> None:
        raise LookupError

    source.before = fail
    with pytest.raises(LookupError):
        read_through(place, source.read)
    source.before = lambda: None
    began = time.monotonic()
    assert read_through(place, source.read) == b"first"
    assert time.monotonic() - began < 0.2


@pytest.mark.parametrize("change", ["forged", "cut", "of another", "old"])
def test_what_is_not_ours_or_old_is_not_served(place: Place, source: Source, store: redis.Redis, change: str) -> None:
    read_through(place, source.read)
    field = f"v:{place.viewpoint}"
    kept = store.hget(place.key, field)
    assert isinstance(kept, bytes)
    put = {
        "forged": kept[:-1] + b"?",
        "cut": kept[:20],
        "of another": status_cache._sealed(Place(UUID(int=1), place.viewpoint), b"another's", time.time()),
        "old": status_cache._sealed(place, b"old", time.time() - 1.1),
    }
    store.hset(place.key, field, put[change])
    store.persist(place.key)
    for _ in range(3):
        assert read_through(place, source.read) == b"first"
    assert source.reads == 2, "the one who found it reads, and what that gives is kept again"


def test_something_else_under_its_name_is_passed_over(place: Place, source: Source, store: redis.Redis) -> None:
    store.set(place.key, "nonsense", px=2000)
    assert read_through(place, source.read) == b"first"


def test_without_redis_a_process_asks_for_itself_and_redis_is_left_alone(
    place: Place, source: Source, unreachable: wakeups.HurriedRedis
) -> None:
    began = time.monotonic()
    for _ in range(20):
        assert read_through(place, source.read) == b"first"
    assert time.monotonic() - began < 0.5
    assert (source.reads, unreachable.errors) == (1, 1)
    source.value = b"second"
    tell(place)
    assert read_through(place, source.read) == b"second"
    source.value = b"third"
    wait_for(lambda: read_through(place, source.read) == b"third", "it is seen within the second", seconds=5)
    assert time.monotonic() - began < 2


@pytest.mark.django_db
def test_what_is_not_committed_is_nobody_elses(place: Place, source: Source, store: redis.Redis) -> None:
    """This test is a transaction."""
    assert read_through(place, source.read) == b"first"
    source.value = b"second"
    assert read_through(place, source.read) == b"second"
    assert not store.exists(place.key)


def test_it_can_be_turned_off(place: Place, source: Source, settings: Settings) -> None:
    settings.PUNCTUAL_STATUS_CACHE_SECONDS = 0
    assert [read_through(place, source.read) for _ in range(3)] == [b"first"] * 3
    assert source.reads == 3


@pytest.mark.django_db(transaction=True)
def test_the_end_and_what_people_order_are_seen_at_once(source: Source) -> None:
    worker, job = make_worker(), make_job(max_concurrency=None)
    held = [run_on(worker, make_execution(job=job)) for _ in range(4)]
    orders: list[tuple[Hold, Callable[[UUID], object]]] = [
        (held[0], lambda _: finish_attempt(held[0], Report(Reason.EXIT, exit_code=0))),
        (held[1], lambda _: finish_attempt(held[1], Report(Reason.EXIT, exit_code=1))),
        (held[1], lambda execution: dismiss_dead_letter(execution, by="somebody")),
        (held[2], lambda execution: commands.cancel_execution(execution, by="somebody")),
        (held[3], lambda _: commands.cancel_job(job.id, by="somebody")),
    ]
    for number, (hold, order) in enumerate(orders):
        place = Place(hold.execution_id, "7")
        source.value = f"before {number}".encode()
        assert read_through(place, source.read) == source.value
        source.value = b"after"
        order(hold.execution_id)
        assert read_through(place, source.read) == source.value, number
        tell(place)
