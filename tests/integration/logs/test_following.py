"""Followers of a log are notified when it grows or ends, fence no connection and never wait too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from jobs.db.waiting import wait_blocking
from jobs.domain import limits
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, Chunk, RunReport
from jobs.execution import transitions, waiters
from jobs.execution.attempts import finish_attempt
from jobs.logs import store
from jobs.logs.store import Page, append_chunks, await_page, read_chunks, read_page
from tests.support.factories import make_execution, make_worker, place_on, run_on
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
LONG = 20.0


def chunk(sequence: int, data: bytes = b"line\n", stream: str = "stdout") -> Chunk:
    return Chunk(sequence, stream, datetime.now(UTC), data)


@pytest.fixture
def fence() -> AttemptFence:
    return run_on(make_worker(), make_execution())


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[list[Page], threading.Thread]]]:
    """Follow in a thread, and return once it has read nothing both before and after it began to listen."""
    threads = []
    reads: list[Page] = []

    def read(*args: Any, **options: Any) -> Page:
        reads.append(page := read_page(*args, **options))
        return page

    monkeypatch.setattr(store, "read_page", read)

    def wait(fence: AttemptFence, **options: Any) -> tuple[list[Page], threading.Thread]:
        pages: list[Page] = []
        reads.clear()

        def follow() -> None:
            try:
                pages.append(wait_blocking(await_page(fence.execution_id, fence.attempt, seconds=LONG, **options)))
            finally:
                connection.close()

        thread = threading.Thread(target=follow)
        threads.append(thread)
        thread.start()
        wait_for(lambda: len(reads) >= 2, "it waits")
        return pages, thread

    yield wait
    for thread in threads:
        thread.join(timeout=30)


@pytest.fixture
def only_wake_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable polling, so that only a wake-up ends a wait in time."""
    monkeypatch.setattr(limits, "FOLLOW_POLL_SECONDS", LONG)


@pytest.fixture
def without_redis(settings: Settings) -> None:
    settings.PUNCTUAL_REDIS_URL = "redis://127.0.0.1:1/0"


def test_follower_gets_new_chunks_at_once(
    fence: AttemptFence, waiting: Callable[..., Any], only_wake_ups: None
) -> None:
    check_news(fence, waiting)


def test_follower_gets_new_chunks_without_redis(
    fence: AttemptFence, waiting: Callable[..., Any], without_redis: None
) -> None:
    check_news(fence, waiting)


def check_news(fence: AttemptFence, waiting: Callable[..., Any]) -> None:
    append_chunks(fence, [chunk(0)])
    pages, thread = waiting(fence, after=0)
    began = time.monotonic()
    append_chunks(fence, [chunk(1, b"news")])
    thread.join(timeout=15)
    assert time.monotonic() - began < LONG / 2
    assert [c.data for c in pages[0].chunks] == [b"news"]
    assert not pages[0].status.ended


def test_follower_gets_the_end_at_once(fence: AttemptFence, waiting: Callable[..., Any], only_wake_ups: None) -> None:
    append_chunks(fence, [chunk(0, b"of the other stream")])
    pages, thread = waiting(fence, stream="stderr")
    finish_attempt(fence, RunReport(Reason.EXIT, exit_code=0))
    thread.join(timeout=15)
    assert (pages[0].chunks, pages[0].status.ended) == ([], True)


def test_follower_polls_the_end_of_a_lost_attempt(fence: AttemptFence, waiting: Callable[..., Any]) -> None:
    pages, thread = waiting(fence)
    transitions.lose_executions({fence.worker_id: None})
    thread.join(timeout=15)
    assert pages[0].status.ended


def test_existing_chunks_or_an_ended_attempt_return_at_once(fence: AttemptFence) -> None:
    began = time.monotonic()
    append_chunks(fence, [chunk(0)])
    page = wait_blocking(await_page(fence.execution_id, None, seconds=LONG))
    assert (page.status.attempt, page.status.ended, len(page.chunks)) == (1, False, 1)
    finish_attempt(fence, RunReport(Reason.EXIT, exit_code=0))
    assert wait_blocking(await_page(fence.execution_id, 1, after=0, seconds=LONG)).status.ended
    assert time.monotonic() - began < LONG / 2


def test_attempt_lost_before_its_claim_has_ended() -> None:
    worker, execution = make_worker(), make_execution()
    placed = place_on(worker, execution)
    assert not wait_blocking(await_page(execution.id, 1, seconds=0)).status.ended
    transitions.lose_executions({placed.worker_id: None})
    run_on(worker, execution)
    page = wait_blocking(await_page(execution.id, 1, seconds=0))
    assert (page.status.attempt, page.status.day, page.status.ended) == (1, None, True)
    assert wait_blocking(await_page(execution.id, None, seconds=0)).status.attempt == 2


def test_follower_over_the_limit_is_answered_at_once(fence: AttemptFence, settings: Settings) -> None:
    settings.PUNCTUAL_WAITING_FOLLOWERS = 0
    waiters.execution_waiter_pool.cache_clear()
    try:
        began = time.monotonic()
        assert wait_blocking(await_page(fence.execution_id, 1, seconds=LONG)).chunks == []
        assert time.monotonic() - began < LONG / 2
    finally:
        waiters.execution_waiter_pool.cache_clear()


def test_waiting_follower_holds_no_connection(fence: AttemptFence, waiting: Callable[..., Any]) -> None:
    connection.close()
    _, thread = waiting(fence)
    wait_for(lambda: connections_in_use() == 0, "it released its connection", seconds=5)
    append_chunks(fence, [chunk(0)])
    thread.join(timeout=15)


def test_slow_reader_holds_no_connection(fence: AttemptFence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PAGE_CHUNKS", 2)
    append_chunks(fence, [chunk(number) for number in range(5)])
    read = 0
    for _ in read_chunks(fence.execution_id, 1):
        read += 1
        assert connections_in_use() == 0
    assert read == 5


def connections_in_use() -> int:
    stats = connection.pool.get_stats()  # type: ignore[attr-defined]  # of our backend
    return int(stats["pool_size"] - stats["pool_available"])
