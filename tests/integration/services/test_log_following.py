"""Who follows a log is told as soon as it grows or ends, holds no connection meanwhile, and never waits too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from jobs import conf
from jobs.protocol import Chunk, Hold, Report
from jobs.services import following, log_following, logs, transitions
from jobs.services.attempts import finish_attempt
from jobs.services.log_following import await_page
from jobs.services.logs import Page, append_chunks, read_chunks, read_page
from jobs.states import Reason
from tests.factories import make_execution, make_worker, place_on, run_on
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
LONG = 20.0


def chunk(sequence: int, data: bytes = b"line\n", stream: str = "stdout") -> Chunk:
    return Chunk(sequence, stream, datetime.now(UTC), data)


@pytest.fixture
def hold() -> Hold:
    return run_on(make_worker(), make_execution())


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[list[Page], threading.Thread]]]:
    """A follower in a thread, once it has found nothing, listens, and has found nothing again."""
    threads = []
    looks: list[Page] = []

    def look(*args: Any, **wanted: Any) -> Page:
        looks.append(page := read_page(*args, **wanted))
        return page

    monkeypatch.setattr(log_following, "read_page", look)

    def wait(hold: Hold, **wanted: Any) -> tuple[list[Page], threading.Thread]:
        pages: list[Page] = []
        looks.clear()

        def follow() -> None:
            try:
                pages.append(await_page(hold.execution_id, hold.attempt, seconds=LONG, **wanted))
            finally:
                connection.close()

        thread = threading.Thread(target=follow)
        threads.append(thread)
        thread.start()
        wait_for(lambda: len(looks) >= 2, "it waits")
        return pages, thread

    yield wait
    for thread in threads:
        thread.join(timeout=30)


@pytest.fixture
def only_wake_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but a wake-up can end a wait in time."""
    monkeypatch.setattr(conf, "FOLLOW_LOOK_SECONDS", LONG)


@pytest.fixture
def without_redis(settings: Settings) -> None:
    settings.PUNCTUAL_REDIS_URL = "redis://127.0.0.1:1/0"


def test_what_is_written_is_told_at_once(hold: Hold, waiting: Callable[..., Any], only_wake_ups: None) -> None:
    check_news(hold, waiting)


def test_what_is_written_is_told_without_redis(hold: Hold, waiting: Callable[..., Any], without_redis: None) -> None:
    check_news(hold, waiting)


def check_news(hold: Hold, waiting: Callable[..., Any]) -> None:
    append_chunks(hold, [chunk(0)])
    pages, thread = waiting(hold, after=0)
    began = time.monotonic()
    append_chunks(hold, [chunk(1, b"news")])
    thread.join(timeout=15)
    assert time.monotonic() - began < LONG / 2
    assert [c.data for c in pages[0].chunks] == [b"news"]
    assert not pages[0].standing.ended


def test_the_end_is_told_at_once(hold: Hold, waiting: Callable[..., Any], only_wake_ups: None) -> None:
    append_chunks(hold, [chunk(0, b"of the other stream")])
    pages, thread = waiting(hold, stream="stderr")
    finish_attempt(hold, Report(Reason.EXIT, exit_code=0))
    thread.join(timeout=15)
    assert (pages[0].chunks, pages[0].standing.ended) == ([], True)


def test_the_end_of_a_lost_attempt_is_seen_by_looking(hold: Hold, waiting: Callable[..., Any]) -> None:
    pages, thread = waiting(hold)
    transitions.lose_held({hold.worker_id: None})
    thread.join(timeout=15)
    assert pages[0].standing.ended


def test_what_is_there_or_over_is_not_waited_for(hold: Hold) -> None:
    began = time.monotonic()
    append_chunks(hold, [chunk(0)])
    page = await_page(hold.execution_id, None, seconds=LONG)
    assert (page.standing.attempt, page.standing.ended, len(page.chunks)) == (1, False, 1)
    finish_attempt(hold, Report(Reason.EXIT, exit_code=0))
    assert await_page(hold.execution_id, 1, after=0, seconds=LONG).standing.ended
    assert time.monotonic() - began < LONG / 2


def test_an_attempt_that_was_given_away_before_it_was_claimed_has_ended() -> None:
    worker, execution = make_worker(), make_execution()
    placed = place_on(worker, execution)
    assert not await_page(execution.id, 1, seconds=0).standing.ended
    transitions.lose_held({placed.worker_id: None})
    run_on(worker, execution)
    page = await_page(execution.id, 1, seconds=0)
    assert (page.standing.attempt, page.standing.day, page.standing.ended) == (1, None, True)
    assert await_page(execution.id, None, seconds=0).standing.attempt == 2


def test_one_follower_too_many_is_answered_at_once(hold: Hold, settings: Settings) -> None:
    settings.PUNCTUAL_WAITING_FOLLOWERS = 0
    following.seats.cache_clear()
    try:
        began = time.monotonic()
        assert await_page(hold.execution_id, 1, seconds=LONG).chunks == []
        assert time.monotonic() - began < LONG / 2
    finally:
        following.seats.cache_clear()


def test_who_waits_holds_no_connection(hold: Hold, waiting: Callable[..., Any]) -> None:
    connection.close()
    _, thread = waiting(hold)
    wait_for(lambda: taken_connections() == 0, "it gave its connection back", seconds=5)
    append_chunks(hold, [chunk(0)])
    thread.join(timeout=15)


def test_who_reads_slowly_holds_no_connection(hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PAGE_CHUNKS", 2)
    append_chunks(hold, [chunk(number) for number in range(5)])
    read = 0
    for _ in read_chunks(hold.execution_id, 1):
        read += 1
        assert taken_connections() == 0
    assert read == 5


def taken_connections() -> int:
    stats = connection.pool.get_stats()  # type: ignore[attr-defined]  # of our backend
    return int(stats["pool_size"] - stats["pool_available"])
