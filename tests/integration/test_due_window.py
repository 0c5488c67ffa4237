"""The due window in a real Redis: what it says, when it is believed, how it is filled, and what an absent one costs."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import redis
from django.db import transaction
from pytest_django import Settings

from jobs import due_window, wakeups
from jobs.due_window import FILLED, KEY, Announced, Announcer, DatabaseClock, Due, DueWindow
from jobs.models import Schedule
from jobs.tasks import refill_due_window
from jobs.wakeups import HurriedRedis
from tests.factories import make_job, make_schedule
from tests.waiting import wait_for

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
    connection = HurriedRedis(settings.PUNCTUAL_REDIS_URL)
    yield DueWindow(connection)
    connection.close()


@pytest.fixture
def absent() -> DueWindow:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return DueWindow(HurriedRedis(f"redis://127.0.0.1:{port}/0"))


def until(condition: Callable[[], object]) -> None:
    wait_for(condition, "what the test waits for", seconds=DEADLINE)


def at(seconds: float) -> datetime:
    """A moment in the middle of a minute that is to come, so that no test depends on when it runs."""
    minute = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=2)
    return minute + timedelta(seconds=seconds)


def score(window: DueWindow, client: redis.Redis, due: Due) -> float | None:
    found: float | None = client.zscore(f"{KEY}{int(due.moment.timestamp() // 60)}", str(due.schedule_id))
    return found


def filled(client: redis.Redis) -> None:
    client.set(FILLED, f"{uuid4().hex}:{at(3600).timestamp()}")


def test_it_says_when_something_is_due_next(window: DueWindow, client: redis.Redis) -> None:
    filled(client)
    window.add([Due(uuid4(), at(20)), Due(uuid4(), at(10)), Due(uuid4(), at(65))])
    assert window.next_after(at(0).timestamp()) == Announced(at(10).timestamp())
    assert window.next_after(at(10).timestamp()) == Announced(at(20).timestamp())
    assert window.next_after(at(20).timestamp()) == Announced(at(65).timestamp()), "in the next minute"
    assert window.next_after(at(65).timestamp()) == Announced(None)


def test_a_moment_is_rounded_up_to_the_millisecond(window: DueWindow, client: redis.Redis) -> None:
    filled(client)
    window.add([Due(uuid4(), at(10) + timedelta(microseconds=1))])
    announced = window.next_after(at(10).timestamp())
    assert announced is not None
    assert announced.moment == pytest.approx(at(10.001).timestamp(), abs=1e-6)


def test_an_announcement_that_was_overtaken_changes_nothing(window: DueWindow, client: redis.Redis) -> None:
    schedule_id = uuid4()
    window.add([Due(schedule_id, at(11))])
    window.add([Due(schedule_id, at(10))])
    assert score(window, client, Due(schedule_id, at(10))) == at(11).timestamp()
    window.add([Due(schedule_id, at(10))], moved=True)
    assert score(window, client, Due(schedule_id, at(10))) == at(10).timestamp(), "its owner has moved it"


def test_its_keys_end_by_themselves(window: DueWindow, client: redis.Redis) -> None:
    window.add([Due(uuid4(), at(10))])
    (key,) = client.keys(f"{KEY}*")
    assert (
        at(60).timestamp()
        <= client.expiretime(str(key, "ascii") if isinstance(key, bytes) else key)
        <= at(60).timestamp() + 600
    )


def test_a_window_that_nobody_filled_is_not_believed(window: DueWindow, client: redis.Redis) -> None:
    window.add([Due(uuid4(), at(10))])
    assert window.next_after(at(0).timestamp()) is None
    filled(client)
    assert window.next_after(at(0).timestamp()) is not None
    client.flushall()
    assert window.next_after(at(0).timestamp()) is None, "Redis was wiped"


def test_after_a_doubt_it_is_believed_again_once_it_was_filled_anew(window: DueWindow, client: redis.Redis) -> None:
    filled(client)
    assert window.next_after(at(0).timestamp()) is not None
    window.doubt()
    assert window.next_after(at(0).timestamp()) is None
    filled(client)
    assert window.next_after(at(0).timestamp()) is not None


def test_a_doubt_holds_for_a_filling_that_was_not_seen_yet(window: DueWindow, client: redis.Redis) -> None:
    filled(client)
    window.doubt()
    assert window.next_after(at(0).timestamp()) is None
    assert window.next_after(at(0).timestamp()) is None
    filled(client)
    assert window.next_after(at(0).timestamp()) is not None


def test_an_absent_redis_is_neither_an_error_nor_believed(absent: DueWindow) -> None:
    began = time.monotonic()
    absent.add([Due(uuid4(), at(10))])
    assert absent.next_after(at(0).timestamp()) is None
    assert absent.lost == 1
    assert time.monotonic() - began < 0.5


def test_a_refill_writes_the_next_hour_and_no_more(window: DueWindow, client: redis.Redis) -> None:
    now = datetime.now(UTC)
    job = make_job()
    soon = make_schedule(job=job, next_instant=now + timedelta(seconds=30))
    later = make_schedule(job=job, next_instant=now + timedelta(minutes=59))
    make_schedule(job=job, next_instant=now + timedelta(minutes=62))
    make_schedule(job=job, next_instant=None)
    assert refill_due_window() == 2
    for schedule in (soon, later):
        assert schedule.next_fire_at is not None
        assert score(window, client, Due(schedule.id, schedule.next_fire_at)) is not None
    announced = window.next_after(now.timestamp())
    assert announced is not None
    assert announced.moment == pytest.approx((now + timedelta(seconds=30)).timestamp(), abs=0.002)


def test_a_refill_reads_page_by_page_also_within_one_instant(
    window: DueWindow, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_window, "PAGE", 2)
    job, moment = make_job(), at(10)
    schedules = [make_schedule(job=job, next_instant=moment) for _ in range(5)]
    assert refill_due_window() == 5
    for schedule in schedules:
        assert score(window, client, Due(schedule.id, moment)) is not None


def test_a_later_refill_reads_only_what_is_near_and_what_is_new(window: DueWindow, client: redis.Redis) -> None:
    job, now = make_job(), datetime.now(UTC)
    make_schedule(job=job, next_instant=now + timedelta(minutes=30))
    assert refill_due_window() == 1
    assert refill_due_window() == 0, "it is there already"
    make_schedule(job=job, next_instant=now + timedelta(minutes=2))
    assert refill_due_window() == 1, "an announcement that got lost is found before it is due"
    client.flushall()
    assert refill_due_window() == 2


def test_a_refill_does_not_undo_what_a_beat_has_announced_meanwhile(window: DueWindow, client: redis.Redis) -> None:
    schedule = make_schedule(next_instant=at(10))
    window.add([Due(schedule.id, at(11))])
    refill_due_window()
    assert score(window, client, Due(schedule.id, at(10))) == at(11).timestamp()


def test_what_was_committed_is_announced_if_it_is_near(window: DueWindow, client: redis.Redis) -> None:
    near, far = uuid4(), uuid4()
    due_window.announce([(near, at(10)), (far, at(0) + FAR), (uuid4(), None)])
    assert score(window, client, Due(near, at(10))) == at(10).timestamp()
    assert len(client.keys(f"{KEY}*")) == 1


def test_the_database_s_clock_is_known_without_asking(db: None) -> None:
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


def settle(announcer: Announcer, found: list[Due], upcoming: list[Due]) -> None:
    """As firing does it after its commit."""
    with announcer.listening() as ear, transaction.atomic():
        transaction.on_commit(lambda: due_window.announce_settled(found, upcoming))
        assert not ear.heard, "not before the commit"
    assert ear.heard


def test_what_firing_advanced_is_announced_by_the_thread(
    announcer: Announcer, window: DueWindow, client: redis.Redis
) -> None:
    due = Due(uuid4(), at(10))
    settle(announcer, [], [due, Due(uuid4(), at(0) + FAR)])
    until(lambda: score(window, client, due))
    until(lambda: announcer.pending_after(0) is None)
    assert len(client.keys(f"{KEY}*")) == 1, "what lies beyond the window waits for a refill"


def test_until_it_is_in_redis_beat_finds_it_here(window: DueWindow) -> None:
    announcer = Announcer(window)  # not started: nothing is written
    settle(announcer, [], [Due(uuid4(), at(20)), Due(uuid4(), at(10))])
    assert announcer.pending_after(at(0).timestamp()) == at(10).timestamp()
    assert announcer.pending_after(at(10).timestamp()) == at(20).timestamp()


def test_without_an_announcer_firing_announces_by_itself(window: DueWindow, client: redis.Redis) -> None:
    wakeups.hurried_redis.cache_clear()
    due = Due(uuid4(), at(10))
    due_window.announce_settled([], [due])
    assert score(window, client, due) == at(10).timestamp()


@dataclass(frozen=True)
class Case:
    """Seconds within a minute: when beat fell asleep and why it would wake, and what it found due at second 10."""

    asleep_from: float | None
    wake_at: float | None
    announced: bool
    wrong: int


@pytest.mark.parametrize(
    "case",
    [
        Case(0, 20, announced=False, wrong=1),
        Case(0, None, announced=False, wrong=1),
        Case(0, 20, announced=True, wrong=0),  # by somebody who woke beat
        Case(0, 10, announced=False, wrong=0),  # what the window said, whoever has written there since
        Case(0, 10.02, announced=False, wrong=0),  # within the tolerance
        Case(15, 20, announced=False, wrong=0),  # due before the sleep: another beat held it
        Case(None, None, announced=False, wrong=0),  # the sleep was Postgres's advice
    ],
)
def test_work_that_the_window_did_not_announce_is_counted(window: DueWindow, client: redis.Redis, case: Case) -> None:
    found = Due(uuid4(), at(10))
    window.add([Due(found.schedule_id, at(10 if case.announced else 9))])
    announcer = Announcer(window)
    announcer.expect(
        *(None if second is None else at(second).timestamp() for second in (case.asleep_from, case.wake_at))
    )
    following = Due(found.schedule_id, at(11))
    settle(announcer, [found], [following])
    announcer.start()
    try:
        until(lambda: announcer.pending_after(0) is None)
        assert window.unannounced == case.wrong
        assert score(window, client, following) == at(11).timestamp()
    finally:
        announcer.stop()


def test_a_page_is_read_through_the_index(db: None) -> None:
    from django.db import connection

    from jobs import sql

    Schedule.objects.count()
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        try:
            cursor.execute(
                "EXPLAIN " + sql.statement("window_page"),
                {"after": at(0), "after_id": uuid4(), "until": at(10), "limit": 10},
            )
            assert "schedule_due" in "\n".join(row[0] for row in cursor.fetchall())
        finally:
            cursor.execute("RESET enable_seqscan")
