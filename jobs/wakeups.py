"""Wakes beat, workers and those who follow a log through Redis when there is something new for them.

A wake-up is a hint: without it beat, and who follows a log, looks by itself within half a second, a worker with its
next renewal, and whoever waits for a worker's work within a second. So nothing here may fail or delay its caller:
short time-outs, and after an error no further try for a moment.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TypeVar
from uuid import UUID

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
CHANNEL = "punctual:wake"
WORK = b"1"
ROOM = b"room"  # a worker has room again: something may be placed, but nothing is due for that
TIMEOUT_SECONDS = 0.05
LISTEN_TIMEOUT_SECONDS = 0.1
PAUSE_AFTER_ERROR_SECONDS = 1.0
# So often a listener asks whether Redis is still there, and so long it waits for the answer.
PING_SECONDS = 5.0
PONG_SECONDS = 2.0


class HurriedRedis:
    """Redis for callers that cannot wait for it: one short try, and after an error none for a moment."""

    def __init__(self, url: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.client = redis.Redis.from_url(
            url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            retry=Retry(NoBackoff(), 0),
        )
        self.errors = 0
        self._quiet_until = 0.0

    def attempt(self, command: Callable[[redis.Redis], Answer]) -> Answer | None:
        """The command's answer, or None when Redis did not give it in time or was not asked."""
        if time.monotonic() < self._quiet_until:
            return None
        try:
            return command(self.client)
        except redis.RedisError as error:
            self.errors += 1
            self._quiet_until = time.monotonic() + PAUSE_AFTER_ERROR_SECONDS
            logger.warning("Redis does not answer in time; it is left alone for a moment: %s", error)
            return None

    def run(self, script: str, key: str, *arguments: str | int | bytes) -> object:
        """A script as `attempt` runs a command: one step to all others, and one round trip once Redis knows it."""

        def evaluate(client: redis.Redis) -> object:
            try:
                return client.evalsha(_name_of(script), 1, key, *arguments)
            except redis.exceptions.NoScriptError:
                return client.eval(script, 1, key, *arguments)

        return self.attempt(evaluate)

    def close(self) -> None:
        self.client.close()


@cache
def _name_of(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


class Waker:
    def __init__(self, connection: HurriedRedis) -> None:
        self._redis = connection

    def wake(self, channel: str = CHANNEL, news: bytes = WORK) -> None:
        self._redis.attempt(lambda client: client.publish(channel, news))


class WakeListener:
    """The ear of beat or of a worker. `wait` returns early when somebody wakes it, and never much later than asked.

    That there is room is for `on_room` alone: when all workers are busy that is most of what beat has to hear.
    """

    def __init__(self, url: str, *, channel: str = CHANNEL, on_room: Callable[[], None] = lambda: None) -> None:
        self._channel = channel
        self._on_room = on_room
        self._redis = redis.Redis.from_url(
            url,
            # A frozen Redis must not hold up who waits: what is due does not wait for it.
            socket_timeout=LISTEN_TIMEOUT_SECONDS,
            socket_connect_timeout=LISTEN_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        self._subscription: redis.client.PubSub | None = None
        self._heard_since: float | None = None
        self._asked_at: float | None = None  # when Redis was asked whether it is there; None: it has answered
        self._answered_at = 0.0
        self._deaf_until = 0.0

    @property
    def hearing_seconds(self) -> float:
        """For how long Redis has been there without a break, as far as this listener can tell."""
        since, asked_at, now = self._heard_since, self._asked_at, time.monotonic()
        if since is None or (asked_at is not None and now - asked_at > PONG_SECONDS):
            return 0.0
        return now - since

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        woken = False
        # Each try to listen may cost its time-outs, and somebody may be due meanwhile: not one at every wait.
        if time.monotonic() >= self._deaf_until:
            try:
                woken = self._listen(deadline)
            except redis.RedisError as error:
                logger.warning(
                    "Wake-ups of %s cannot be heard; looking without them meanwhile: %s", self._channel, error
                )
                self._deaf_until = time.monotonic() + PAUSE_AFTER_ERROR_SECONDS
                self.close()
        if not woken:
            # An absent Redis answers at once: without this, the caller would spin.
            time.sleep(max(0.0, deadline - time.monotonic()))
        return woken

    def _listen(self, deadline: float) -> bool:
        if self._subscription is None:
            self._subscription = self._redis.pubsub()  # type: ignore[no-untyped-call]
            self._subscription.subscribe(self._channel)
            self._ask(self._subscription)
        while (left := deadline - time.monotonic()) > 0:
            news = self._take_news(self._subscription, min(left, PONG_SECONDS))
            self._check_there(self._subscription)
            if ROOM in news:
                self._on_room()
            if news - {ROOM}:
                return True
        return False

    def _take_news(self, subscription: redis.client.PubSub, seconds: float) -> set[bytes]:
        """One look serves every wake-up that has come meanwhile."""
        news = set()
        message = subscription.get_message(timeout=seconds)
        while message is not None:
            if message["type"] == "message":
                news.add(message["data"])
            elif message["type"] == "pong":
                self._asked_at, self._answered_at = None, time.monotonic()
                self._heard_since = self._heard_since or self._answered_at
            message = subscription.get_message(timeout=0)
        return news

    def _check_there(self, subscription: redis.client.PubSub) -> None:
        """A Redis that froze keeps its connections open and says nothing, as one does that has nothing to say."""
        now = time.monotonic()
        if self._asked_at is None:
            if now - self._answered_at >= PING_SECONDS:
                self._ask(subscription)
        elif now - self._asked_at > PONG_SECONDS:
            raise redis.TimeoutError(f"Redis has not answered for {PONG_SECONDS:g} s")

    def _ask(self, subscription: redis.client.PubSub) -> None:
        self._asked_at = time.monotonic()
        subscription.ping()

    def close(self) -> None:
        subscription, self._subscription, self._heard_since = self._subscription, None, None
        self._asked_at = None
        if subscription is not None:
            try:
                subscription.close()
            except redis.RedisError:
                logger.debug("Redis went away before the subscription was closed")


@lru_cache(maxsize=1)
def hurried_redis() -> HurriedRedis:
    """Shared by all that a request tells Redis, so that one time-out is all that it can cost."""
    return HurriedRedis(settings.PUNCTUAL_REDIS_URL)


def wake_beat() -> None:
    Waker(hurried_redis()).wake()


def tell_of_room() -> None:
    Waker(hurried_redis()).wake(news=ROOM)


def worker_channel(worker_id: UUID) -> str:
    return f"punctual:worker:{worker_id}"


def wake_worker(worker_id: UUID) -> None:
    """There is something new for it: work, or an order to stop some."""
    Waker(hurried_redis()).wake(worker_channel(worker_id))


def log_channel(execution_id: UUID) -> str:
    return f"punctual:log:{execution_id}"


def wake_followers(execution_id: UUID) -> None:
    """Its log has grown, or is complete."""
    Waker(hurried_redis()).wake(log_channel(execution_id))
