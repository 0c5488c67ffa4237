"""Wake-ups arrive at once through Redis; an absent or frozen Redis causes no delays."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis
from django.conf import settings

from jobs.db import wakeups
from jobs.db.wakeups import (
    BEAT_CHANNEL,
    LISTEN_TIMEOUT_SECONDS,
    PAUSE_AFTER_ERROR_SECONDS,
    BestEffortRedis,
    WakeupListener,
)
from scheduler_project.localstack.engines.standalone import Engines
from tests.support.waiting import wait_for

DEADLINE = 10.0


@pytest.fixture
def url(engines: Engines) -> str:
    return str(settings.PUNCTUAL_REDIS_URL)


@pytest.fixture
def listener(url: str) -> Iterator[WakeupListener]:
    listener = WakeupListener(url)
    yield listener
    listener.close()
    listener._redis.close()


@pytest.fixture
def frozen_url() -> Iterator[str]:
    """A server that accepts connections and never responds, like a stopped process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://:password@127.0.0.1:{server.getsockname()[1]}/0"


@pytest.fixture
def absent_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"redis://127.0.0.1:{port}/0"


def wait_for_subscriber(url: str) -> None:
    deadline = time.monotonic() + DEADLINE
    with redis.Redis.from_url(url) as client:
        while dict(client.pubsub_numsub(BEAT_CHANNEL)).get(BEAT_CHANNEL.encode(), 0) == 0:
            assert time.monotonic() < deadline, "no subscriber"


def is_woken(listener: WakeupListener) -> bool:
    listener.wait(0.01)
    return listener.connected_seconds > 0


def seconds(call: Callable[[], object]) -> float:
    started = time.monotonic()
    call()
    return time.monotonic() - started


def test_wakeup_ends_the_wait(url: str, listener: WakeupListener) -> None:
    woken: list[bool] = []
    waiting = threading.Thread(target=lambda: woken.append(listener.wait(DEADLINE)))
    waiting.start()
    wait_for_subscriber(url)
    BestEffortRedis(url).publish()
    waiting.join(DEADLINE / 2)
    assert woken == [True]


def test_freed_capacity_calls_back_without_ending_the_wait(url: str) -> None:
    calls: list[bool] = []
    listener = WakeupListener(url, on_capacity_freed=lambda: calls.append(True))
    listener.wait(0.01)
    wakeups.notify_capacity_freed()
    assert not listener.wait(0.5)
    assert calls == [True]
    wakeups.notify_capacity_freed()
    wakeups.wake_beat()
    assert listener.wait(DEADLINE)
    assert calls == [True, True]
    listener.close()
    listener._redis.close()


def test_project_wakes_beat_through_its_redis(url: str, listener: WakeupListener) -> None:
    listener.wait(0.01)
    wakeups.wake_beat()
    assert listener.wait(DEADLINE)


def test_listener_reports_how_long_redis_has_been_connected(
    url: str, listener: WakeupListener, absent_url: str
) -> None:
    assert listener.connected_seconds == 0
    wait_for(lambda: is_woken(listener), "it hears", seconds=DEADLINE)
    first = listener.connected_seconds
    listener.wait(0.05)
    assert listener.connected_seconds > first
    listener.close()
    assert listener.connected_seconds == 0
    deaf = WakeupListener(absent_url)
    deaf.wait(0.01)
    assert deaf.connected_seconds == 0


def test_frozen_redis_counts_as_disconnected_until_it_resumes(
    engines: Engines, listener: WakeupListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "PING_SECONDS", 0.05)
    monkeypatch.setattr(wakeups, "PONG_SECONDS", 0.2)
    wait_for(lambda: is_woken(listener), "it hears", seconds=DEADLINE)
    os.kill(engines.valkey.pid, signal.SIGSTOP)
    try:
        frozen_at = time.monotonic()
        wait_for(lambda: not is_woken(listener), "it notices", seconds=DEADLINE)
        assert seconds(lambda: listener.wait(0.01)) < LISTEN_TIMEOUT_SECONDS, "the wait does not depend on it"
        assert not is_woken(listener)
    finally:
        os.kill(engines.valkey.pid, signal.SIGCONT)
    wait_for(lambda: is_woken(listener), "it hears again", seconds=DEADLINE)
    assert listener.connected_seconds < time.monotonic() - frozen_at, "counted from the reconnection"


def test_busy_caller_reads_the_pong_that_arrived_meanwhile(
    listener: WakeupListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat that is busy firing."""
    wait_for(lambda: is_woken(listener), "it hears", seconds=DEADLINE)
    before = listener.connected_seconds
    monkeypatch.setattr(wakeups, "PING_SECONDS", 0.0)
    listener.wait(0.01)
    assert listener._asked_at is not None
    listener._asked_at -= 60
    assert listener.connected_seconds == 0, "nothing has been read yet"
    listener.wait(0.01)
    assert listener.connected_seconds > before


def test_many_wakeups_end_one_wait(url: str, listener: WakeupListener) -> None:
    listener.wait(0.01)
    publisher = BestEffortRedis(url)
    for _ in range(20):
        publisher.publish()
    assert listener.wait(DEADLINE)
    assert not listener.wait(0.05)


def test_wait_without_wakeup_takes_its_full_time(url: str, listener: WakeupListener) -> None:
    listener.wait(0.01)
    assert 0.1 <= seconds(lambda: listener.wait(0.1)) < 2


def test_expired_wait_returns_at_once(listener: WakeupListener) -> None:
    assert seconds(lambda: listener.wait(0)) < 1
    assert seconds(lambda: listener.wait(-5)) < 1


def test_absent_redis_is_not_retried_in_a_loop(absent_url: str) -> None:
    listener = WakeupListener(absent_url)
    assert 0.2 <= seconds(lambda: listener.wait(0.2)) < 2


def test_frozen_redis_delays_beat_only_by_the_timeouts(frozen_url: str) -> None:
    listener = WakeupListener(frozen_url)
    assert 0.1 <= seconds(lambda: listener.wait(0.1)) < 0.1 + 3 * LISTEN_TIMEOUT_SECONDS
    assert seconds(lambda: listener.wait(0.01)) < LISTEN_TIMEOUT_SECONDS, "no retry for a moment"
    listener.close()


def test_listener_reconnects_once_redis_is_back(url: str, listener: WakeupListener) -> None:
    listener.wait(0.01)
    with redis.Redis.from_url(url) as client:
        client.client_kill_filter(_type="pubsub")
    deadline = time.monotonic() + DEADLINE
    woken = False
    while not woken:
        assert time.monotonic() < deadline
        BestEffortRedis(url).publish()
        woken = listener.wait(PAUSE_AFTER_ERROR_SECONDS / 10)


@pytest.mark.parametrize("which", ["frozen_url", "absent_url"])
def test_publisher_neither_fails_nor_delays_and_then_pauses(request: pytest.FixtureRequest, which: str) -> None:
    connection = BestEffortRedis(request.getfixturevalue(which))
    assert seconds(connection.publish) < 0.3
    assert connection.errors == 1
    started = time.monotonic()
    for _ in range(1000):
        connection.publish()
    assert time.monotonic() - started < 0.05, "no retry for a moment"


def test_publisher_retries_after_the_pause(url: str, listener: WakeupListener) -> None:
    listener.wait(0.01)
    connection = BestEffortRedis(url)
    connection._backoff_until = time.monotonic() + 60
    connection.publish()
    assert not listener.wait(0.05)
    connection._backoff_until = 0.0
    connection.publish()
    assert listener.wait(DEADLINE)
