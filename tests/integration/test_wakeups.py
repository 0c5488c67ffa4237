"""A wake-up arrives at once through Redis; a Redis that is away or frozen delays nobody."""

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

from jobs import wakeups
from jobs.wakeups import CHANNEL, LISTEN_TIMEOUT_SECONDS, PAUSE_AFTER_ERROR_SECONDS, HurriedRedis, WakeListener, Waker
from scheduler_project.embedded.engines import Engines
from tests.waiting import wait_for

DEADLINE = 10.0


@pytest.fixture
def url(engines: Engines) -> str:
    return str(settings.PUNCTUAL_REDIS_URL)


@pytest.fixture
def listener(url: str) -> Iterator[WakeListener]:
    listener = WakeListener(url)
    yield listener
    listener.close()
    listener._redis.close()


@pytest.fixture
def frozen_url() -> Iterator[str]:
    """Connections are taken and never answered, as by a stopped process."""
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
        while dict(client.pubsub_numsub(CHANNEL)).get(CHANNEL.encode(), 0) == 0:
            assert time.monotonic() < deadline, "nobody listens"


def hears(listener: WakeListener) -> bool:
    listener.wait(0.01)
    return listener.hearing_seconds > 0


def seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_a_wake_up_ends_the_wait(url: str, listener: WakeListener) -> None:
    woken: list[bool] = []
    waiting = threading.Thread(target=lambda: woken.append(listener.wait(DEADLINE)))
    waiting.start()
    wait_for_subscriber(url)
    Waker(HurriedRedis(url)).wake()
    waiting.join(DEADLINE / 2)
    assert woken == [True]


def test_that_there_is_room_is_told_without_ending_the_wait(url: str) -> None:
    told: list[bool] = []
    listener = WakeListener(url, on_room=lambda: told.append(True))
    listener.wait(0.01)
    wakeups.tell_of_room()
    assert not listener.wait(0.5)
    assert told == [True]
    wakeups.tell_of_room()
    wakeups.wake_beat()
    assert listener.wait(DEADLINE)
    assert told == [True, True]
    listener.close()
    listener._redis.close()


def test_the_project_wakes_beat_through_its_own_redis(url: str, listener: WakeListener) -> None:
    listener.wait(0.01)
    wakeups.wake_beat()
    assert listener.wait(DEADLINE)


def test_a_listener_knows_for_how_long_redis_has_been_there(url: str, listener: WakeListener, absent_url: str) -> None:
    assert listener.hearing_seconds == 0
    wait_for(lambda: hears(listener), "it hears", seconds=DEADLINE)
    first = listener.hearing_seconds
    listener.wait(0.05)
    assert listener.hearing_seconds > first
    listener.close()
    assert listener.hearing_seconds == 0
    deaf = WakeListener(absent_url)
    deaf.wait(0.01)
    assert deaf.hearing_seconds == 0


def test_a_redis_that_froze_is_not_there_and_is_there_again_once_it_goes_on(
    engines: Engines, listener: WakeListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "PING_SECONDS", 0.05)
    monkeypatch.setattr(wakeups, "PONG_SECONDS", 0.2)
    wait_for(lambda: hears(listener), "it hears", seconds=DEADLINE)
    os.kill(engines.valkey.pid, signal.SIGSTOP)
    try:
        frozen_at = time.monotonic()
        wait_for(lambda: not hears(listener), "it notices", seconds=DEADLINE)
        assert seconds(lambda: listener.wait(0.01)) < LISTEN_TIMEOUT_SECONDS, "nobody waits for it"
        assert not hears(listener)
    finally:
        os.kill(engines.valkey.pid, signal.SIGCONT)
    wait_for(lambda: hears(listener), "it hears again", seconds=DEADLINE)
    assert listener.hearing_seconds < time.monotonic() - frozen_at, "from then on, not from the beginning"


def test_who_does_not_listen_for_long_takes_the_answer_that_came_meanwhile(
    listener: WakeListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat that fires all the while."""
    wait_for(lambda: hears(listener), "it hears", seconds=DEADLINE)
    before = listener.hearing_seconds
    monkeypatch.setattr(wakeups, "PING_SECONDS", 0.0)
    listener.wait(0.01)
    assert listener._asked_at is not None
    listener._asked_at -= 60
    assert listener.hearing_seconds == 0, "who has not looked does not know"
    listener.wait(0.01)
    assert listener.hearing_seconds > before


def test_many_wake_ups_are_one_look(url: str, listener: WakeListener) -> None:
    listener.wait(0.01)
    waker = Waker(HurriedRedis(url))
    for _ in range(20):
        waker.wake()
    assert listener.wait(DEADLINE)
    assert not listener.wait(0.05)


def test_without_a_wake_up_the_wait_takes_as_long_as_asked(url: str, listener: WakeListener) -> None:
    listener.wait(0.01)
    assert 0.1 <= seconds(lambda: listener.wait(0.1)) < 2


def test_a_time_that_is_over_is_not_waited_for(listener: WakeListener) -> None:
    assert seconds(lambda: listener.wait(0)) < 1
    assert seconds(lambda: listener.wait(-5)) < 1


def test_an_absent_redis_is_waited_out_not_hammered(absent_url: str) -> None:
    listener = WakeListener(absent_url)
    assert 0.2 <= seconds(lambda: listener.wait(0.2)) < 2


def test_a_frozen_redis_delays_beat_by_no_more_than_its_time_outs(frozen_url: str) -> None:
    listener = WakeListener(frozen_url)
    assert 0.1 <= seconds(lambda: listener.wait(0.1)) < 0.1 + 3 * LISTEN_TIMEOUT_SECONDS
    assert seconds(lambda: listener.wait(0.01)) < LISTEN_TIMEOUT_SECONDS, "no further try for a moment"
    listener.close()


def test_a_listener_hears_again_once_redis_is_back(url: str, listener: WakeListener) -> None:
    listener.wait(0.01)
    with redis.Redis.from_url(url) as client:
        client.client_kill_filter(_type="pubsub")
    deadline = time.monotonic() + DEADLINE
    heard = False
    while not heard:
        assert time.monotonic() < deadline
        Waker(HurriedRedis(url)).wake()
        heard = listener.wait(PAUSE_AFTER_ERROR_SECONDS / 10)


@pytest.mark.parametrize("which", ["frozen_url", "absent_url"])
def test_a_waker_neither_fails_nor_delays_and_then_keeps_quiet(request: pytest.FixtureRequest, which: str) -> None:
    connection = HurriedRedis(request.getfixturevalue(which))
    waker = Waker(connection)
    assert seconds(waker.wake) < 0.3
    assert connection.errors == 1
    began = time.monotonic()
    for _ in range(1000):
        waker.wake()
    assert time.monotonic() - began < 0.05, "no further try for a moment"


def test_after_the_pause_a_waker_tries_again(url: str, listener: WakeListener) -> None:
    listener.wait(0.01)
    connection = HurriedRedis(url)
    waker = Waker(connection)
    connection._quiet_until = time.monotonic() + 60
    waker.wake()
    assert not listener.wait(0.05)
    connection._quiet_until = 0.0
    waker.wake()
    assert listener.wait(DEADLINE)
