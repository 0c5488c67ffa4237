"""The due window in a real Redis: entries, validity, refills, and an absent Redis."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import redis
from pytest_django import Settings

from jobs.db import due_window, wakeups
from jobs.db.due_window import FILLED_KEY, KEY_PREFIX, Announcer, DatabaseClock, DueEntry, DueWindow, NextAnnouncement
from jobs.db.wakeups import BestEffortRedis
from jobs.models import Schedule
from jobs.tasks import refill_due_window
from tests.support.factories import make_job, make_schedule
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

DEADLINE = 10.0
FAR = timedelta(days=1)


@pytest.fixture
def client(settings: Settings, db: None) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        client.flushall()
        yield client
        client.flushall()


@pytest.fixture
def window(settings: Settings, client: redis.Redis) -> Iterator[DueWindow]:
    connection = BestEffortRedis(settings.PUNCTUAL_REDIS_URL)
    yield DueWindow(connection)
    connection.close()


@pytest.fixture
def absent() -> DueWindow:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return DueWindow(BestEffortRedis(f"redis://127.0.0.1:{port}/0"))


def until(condition: Callable[[], object]) -> None:
    wait_for(condition, "what the test waits for", seconds=DEADLINE)


def at(seconds: float) -> datetime:
    """Return a time in the middle of a future minute, so that tests do not depend on when they run."""
    minute = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=2)
    return minute + timedelta(seconds=seconds)


def score(window: DueWindow, client: redis.Redis, due: DueEntry) -> float | None:
    found: float | None = client.zscore(f"{KEY_PREFIX}{int(due.due_at.timestamp() // 60)}", str(due.schedule_id))
    return found


def filled(client: redis.Redis) -> None:
    client.set(FILLED_KEY, f"{uuid4().hex}:{at(3600).timestamp()}")


def test_next_after_returns_the_next_due_time(window: DueWindow, client: redis.Redis) -> None:
    filled(client)
    window.add([DueEntry(uuid4(), at(20)), DueEntry(uuid4(), at(10)), DueEntry(uuid4(), at(65))])
    assert window.next_after(at(0).timestamp()) == NextAnnouncement(at(10).timestamp())
    assert window.next_after(at(10).timestamp()) == NextAnnouncement(at(20).timestamp())
    assert window.next_after(at(20).timestamp()) == NextAnnouncement(at(65).timestamp()), "in the next minute"
    assert window.next_after(at(65).timestamp()) == NextAnnouncement(None)


def test_times_are_rounded_up_to_milliseconds(window: DueWindow, client: redis.Redis) -> None:
    filled(client)
    window.add([DueEntry(uuid4(), at(10) + timedelta(microseconds=1))])
    announced = window.next_after(at(10).timestamp())
    assert announced is not None
    assert announced.due_at == pytest.approx(at(10.001).timestamp(), abs=1e-6)


def test_late_announcement_changes_nothing(window: DueWindow, client: redis.Redis) -> None:
    schedule_id = uuid4()
    window.add([DueEntry(schedule_id, at(11))])
    window.add([DueEntry(schedule_id, at(10))])
    assert score(window, client, DueEntry(schedule_id, at(10))) == at(11).timestamp()
    window.add([DueEntry(schedule_id, at(10))], moved=True)
    assert score(window, client, DueEntry(schedule_id, at(10))) == at(10).timestamp(), "its owner moved it"


def test_keys_expire(window: DueWindow, client: redis.Redis) -> None:
    window.add([DueEntry(uuid4(), at(10))])
    (key,) = client.keys(f"{KEY_PREFIX}*")
    assert (
        at(60).timestamp()
        <= client.expiretime(str(key, "ascii") if isinstance(key, bytes) else key)
        <= at(60).timestamp() + 600
    )


def test_unfilled_window_is_invalid(window: DueWindow, client: redis.Redis) -> None:
    window.add([DueEntry(uuid4(), at(10))])
    assert window.next_after(at(0).timestamp()) is None
    filled(client)
    assert window.next_after(at(0).timestamp()) is not None
    client.flushall()
    assert window.next_after(at(0).timestamp()) is None, "Redis was wiped"


def test_invalidated_window_is_valid_after_a_refill(window: DueWindow, client: redis.Redis) -> None:
    filled(client)
    assert window.next_after(at(0).timestamp()) is not None
    window.invalidate()
    assert window.next_after(at(0).timestamp()) is None
    filled(client)
    assert window.next_after(at(0).timestamp()) is not None


def test_invalidation_applies_to_an_unseen_refill(window: DueWindow, client: redis.Redis) -> None:
    filled(client)
    window.invalidate()
    assert window.next_after(at(0).timestamp()) is None
    assert window.next_after(at(0).timestamp()) is None
    filled(client)
    assert window.next_after(at(0).timestamp()) is not None


def test_absent_redis_is_a_fallback_and_no_error(absent: DueWindow) -> None:
    started = time.monotonic()
    absent.add([DueEntry(uuid4(), at(10))])
    assert absent.next_after(at(0).timestamp()) is None
    assert absent.lost == 1
    assert time.monotonic() - started < 0.5


def test_refill_writes_exactly_the_next_hour(window: DueWindow, client: redis.Redis) -> None:
    now = datetime.now(UTC)
    job = make_job()
    soon = make_schedule(job=job, next_instant=now + timedelta(seconds=30))
    later = make_schedule(job=job, next_instant=now + timedelta(minutes=59))
    make_schedule(job=job, next_instant=now + timedelta(minutes=62))
    make_schedule(job=job, next_instant=None)
    assert refill_due_window() == 2
    for schedule in (soon, later):
        assert schedule.next_fire_at is not None
        assert score(window, client, DueEntry(schedule.id, schedule.next_fire_at)) is not None
    announced = window.next_after(now.timestamp())
    assert announced is not None
    assert announced.due_at == pytest.approx((now + timedelta(seconds=30)).timestamp(), abs=0.002)


def test_refill_pages_within_one_instant(
    window: DueWindow, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_window, "PAGE_SCHEDULES", 2)
    job, moment = make_job(), at(10)
    schedules = [make_schedule(job=job, next_instant=moment) for _ in range(5)]
    assert refill_due_window() == 5
    for schedule in schedules:
        assert score(window, client, DueEntry(schedule.id, moment)) is not None


def test_later_refill_reads_only_the_near_and_the_new_range(window: DueWindow, client: redis.Redis) -> None:
    job, now = make_job(), datetime.now(UTC)
    make_schedule(job=job, next_instant=now + timedelta(minutes=30))
    assert refill_due_window() == 1
    assert refill_due_window() == 0, "it is already in the window"
    make_schedule(job=job, next_instant=now + timedelta(minutes=2))
    assert refill_due_window() == 1, "a lost announcement is found before it is due"
    client.flushall()
    assert refill_due_window() == 2


def test_refill_does_not_overwrite_newer_announcements(window: DueWindow, client: redis.Redis) -> None:
    schedule = make_schedule(next_instant=at(10))
    window.add([DueEntry(schedule.id, at(11))])
    refill_due_window()
    assert score(window, client, DueEntry(schedule.id, at(10))) == at(11).timestamp()


def test_committed_due_times_within_the_window_are_announced(window: DueWindow, client: redis.Redis) -> None:
    near, far = uuid4(), uuid4()
    due_window.announce_due([(near, at(10)), (far, at(0) + FAR), (uuid4(), None)])
    assert score(window, client, DueEntry(near, at(10))) == at(10).timestamp()
    assert len(client.keys(f"{KEY_PREFIX}*")) == 1


def test_database_clock_needs_no_query(db: None) -> None:
    clock = DatabaseClock()
    clock.measure()
    assert 0 < clock.uncertainty < 1
    assert clock.now() == pytest.approx(datetime.now(UTC).timestamp(), abs=1), "both run on this machine"


@pytest.fixture
def announcer(window: DueWindow) -> Iterator[Announcer]:
    announcer = Announcer(window)
    announcer.start()
    yield announcer
    announcer.stop()


def test_thread_announces_schedules_that_firing_advanced(
    announcer: Announcer, window: DueWindow, client: redis.Redis
) -> None:
    due = DueEntry(uuid4(), at(10))
    announcer.put([], [due, DueEntry(uuid4(), at(0) + FAR)])
    until(lambda: score(window, client, due))
    until(lambda: announcer.pending_after(0) is None)
    assert len(client.keys(f"{KEY_PREFIX}*")) == 1, "times beyond the window wait for a refill"


def test_pending_announcements_are_visible_to_beat(window: DueWindow) -> None:
    announcer = Announcer(window)  # not started: nothing is written
    announcer.put([], [DueEntry(uuid4(), at(20)), DueEntry(uuid4(), at(10))])
    assert announcer.pending_after(at(0).timestamp()) == at(10).timestamp()
    assert announcer.pending_after(at(10).timestamp()) == at(20).timestamp()


def test_firing_announces_directly_without_an_announcer(window: DueWindow, client: redis.Redis) -> None:
    wakeups.best_effort_redis.cache_clear()
    due = DueEntry(uuid4(), at(10))
    due_window.announce_fired([], [due])
    assert score(window, client, due) == at(10).timestamp()


@dataclass(frozen=True)
class Case:
    """Seconds within a minute: when beat fell asleep and would wake; a schedule is found due at second 10."""

    asleep_from: float | None
    wake_at: float | None
    announced: bool
    wrong: int


@pytest.mark.parametrize(
    "case",
    [
        Case(0, 20, announced=False, wrong=1),
        Case(0, None, announced=False, wrong=1),
        Case(0, 20, announced=True, wrong=0),  # by a process that woke beat
        Case(0, 10, announced=False, wrong=0),  # as the window said
        Case(0, 10.02, announced=False, wrong=0),  # within the tolerance
        Case(15, 20, announced=False, wrong=0),  # due before the sleep: another beat held it
        Case(None, None, announced=False, wrong=0),  # beat slept because of Postgres
    ],
)
def test_unannounced_work_is_counted(window: DueWindow, client: redis.Redis, case: Case) -> None:
    found = DueEntry(uuid4(), at(10))
    window.add([DueEntry(found.schedule_id, at(10 if case.announced else 9))])
    announcer = Announcer(window)
    announcer.expect(
        *(None if second is None else at(second).timestamp() for second in (case.asleep_from, case.wake_at))
    )
    following = DueEntry(found.schedule_id, at(11))
    announcer.put([found], [following])
    announcer.start()
    try:
        until(lambda: announcer.pending_after(0) is None)
        assert window.unannounced == case.wrong
        assert score(window, client, following) == at(11).timestamp()
    finally:
        announcer.stop()


def test_page_query_uses_the_index(db: None) -> None:
    from django.db import connection

    from jobs.db import sql

    Schedule.objects.count()
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        try:
            cursor.execute(
                "EXPLAIN " + sql.statement("read_window_page"),
                {"after": at(0), "after_id": uuid4(), "until": at(10), "limit": 10},
            )
            assert "schedule_due" in "\n".join(row[0] for row in cursor.fetchall())
        finally:
            cursor.execute("RESET enable_seqscan")


WRONG_TYPES: dict[str, Callable[[redis.Redis, str], object]] = {
    "list": lambda client, key: client.rpush(key, "x"),
    "hash": lambda client, key: client.hset(key, "x", "y"),
    "set": lambda client, key: client.sadd(key, "x"),
    "stream": lambda client, key: client.xadd(key, {"x": "y"}),
}
NO_MARKS = (
    b"", b"x", b":", b"x:", b"x:y", b"x:nan", b"x:inf", b"x:-inf", b"x:1e300", b"x:-1", b"x:99999999999", b"\xff",
)  # fmt: skip
FORGED: dict[str, Callable[[redis.Redis, str], object]] = {
    repr(value): lambda client, key, value=value: client.set(key, value)  # type: ignore[misc]
    for value in NO_MARKS
}


@pytest.mark.parametrize("forge", [*FORGED.values(), *WRONG_TYPES.values()], ids=[*FORGED, *WRONG_TYPES])
def test_forged_mark_is_ignored_and_does_not_stop_refills(
    window: DueWindow, client: redis.Redis, forge: Callable[[redis.Redis, str], object]
) -> None:
    schedule = make_schedule(next_instant=datetime.now(UTC) + timedelta(minutes=30))
    now = datetime.now(UTC).timestamp()
    forge(client, FILLED_KEY)
    assert window.next_after(now) is None
    assert window._redis.errors == 0, "Redis itself does not fail"
    assert refill_due_window() == 1, "the whole window, not only the near part"
    assert schedule.next_fire_at is not None
    assert score(window, client, DueEntry(schedule.id, schedule.next_fire_at)) is not None
    assert window.next_after(now) == NextAnnouncement(None)
    assert refill_due_window() == 0


@pytest.mark.parametrize("spoil", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_key_of_wrong_type_is_replaced(
    window: DueWindow, client: redis.Redis, spoil: Callable[[redis.Redis, str], object]
) -> None:
    schedule = make_schedule(next_instant=at(10))
    key = f"{KEY_PREFIX}{int(at(10).timestamp() // 60)}"
    spoil(client, key)
    filled(client)
    assert window.next_after(at(0).timestamp()) is None, "its content is unknown"
    assert window.count_unannounced([DueEntry(schedule.id, at(10))]) == 1
    client.delete(FILLED_KEY)
    assert refill_due_window() == 1
    assert window.next_after(at(0).timestamp()) == NextAnnouncement(at(10).timestamp())
    client.delete(key)
    spoil(client, key)
    window.add([DueEntry(uuid4(), at(20))])
    assert window.next_after(at(0).timestamp()) is None, "entries are missing until a refill"
    refill_due_window()
    assert window.next_after(at(0).timestamp()) == NextAnnouncement(at(10).timestamp())
    assert (window._redis.errors, window.lost) == (0, 0)


@pytest.mark.parametrize("spoil", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_refill_starts_whatever_the_filling_mark_holds(
    window: DueWindow, client: redis.Redis, spoil: Callable[[redis.Redis, str], object]
) -> None:
    make_schedule(next_instant=at(10))
    spoil(client, due_window.FILLING_KEY)
    assert refill_due_window() == 1
    assert window.next_after(at(0).timestamp()) is not None
