"""Wake-ups of beat, workers and log followers through Redis pub/sub.

A wake-up is a hint: beat and log followers also poll every half second, REST workers every second, and Celery workers
learn of orders with their next lease renewal. So nothing here may fail or delay its caller: timeouts are short, and
after an error Redis is skipped for a moment.
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
BEAT_CHANNEL = "punctual:wake"
WORK = b"1"
CAPACITY_FREED = b"room"  # a worker has free capacity again: placement may continue, but no schedule became due
TIMEOUT_SECONDS = 0.05
LISTEN_TIMEOUT_SECONDS = 0.1
PAUSE_AFTER_ERROR_SECONDS = 1.0
# Interval of a listener's pings, and how long it waits for the pong.
PING_SECONDS = 5.0
PONG_SECONDS = 2.0


class BestEffortRedis:
    """Redis client with short timeouts that skips calls for a moment after an error."""

    def __init__(self, url: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.client = redis.Redis.from_url(
            url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            retry=Retry(NoBackoff(), 0),
        )
        self.errors = 0
        self._backoff_until = 0.0

    def try_call(self, command: Callable[[redis.Redis], Answer]) -> Answer | None:
        """Return the command's response; None if Redis did not respond in time or was skipped."""
        if time.monotonic() < self._backoff_until:
            return None
        try:
            return command(self.client)
        except redis.RedisError as error:
            self.errors += 1
            self._backoff_until = time.monotonic() + PAUSE_AFTER_ERROR_SECONDS
            logger.warning("Redis does not respond in time; skipping it for a moment: %s", error)
            return None

    def run_script(self, script: str, key: str, *arguments: str | int | bytes) -> object:
        """Run a Lua script like `try_call`: atomic, and one round trip once Redis has cached it."""

        def evaluate(client: redis.Redis) -> object:
            try:
                return client.evalsha(_script_digest(script), 1, key, *arguments)
            except redis.exceptions.NoScriptError:
                return client.eval(script, 1, key, *arguments)

        return self.try_call(evaluate)

    def publish(self, channel: str = BEAT_CHANNEL, message: bytes = WORK) -> None:
        self.try_call(lambda client: client.publish(channel, message))

    def close(self) -> None:
        self.client.close()


@cache
def _script_digest(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


class WakeupListener:
    """Subscription of beat or a worker. `wait` returns early on a wake-up, and never much later than asked.

    CAPACITY_FREED does not end a wait but calls `on_capacity_freed`: with busy workers it is most of beat's traffic.
    """

    def __init__(
        self, url: str, *, channel: str = BEAT_CHANNEL, on_capacity_freed: Callable[[], None] = lambda: None
    ) -> None:
        self._channel = channel
        self._on_capacity_freed = on_capacity_freed
        self._redis = redis.Redis.from_url(
            url,
            # A frozen Redis must not delay the caller, for whom schedules become due meanwhile.
            socket_timeout=LISTEN_TIMEOUT_SECONDS,
            socket_connect_timeout=LISTEN_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        self._subscription: redis.client.PubSub | None = None
        self._connected_since: float | None = None
        self._asked_at: float | None = None  # time of the pending ping; None: no ping is pending
        self._answered_at = 0.0
        self._retry_at = 0.0

    @property
    def connected_seconds(self) -> float:
        """How long the connection has been up without interruption, as far as the pings show."""
        since, asked_at, now = self._connected_since, self._asked_at, time.monotonic()
        if since is None or (asked_at is not None and now - asked_at > PONG_SECONDS):
            return 0.0
        return now - since

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        woken = False
        # Connecting may take its timeouts, while schedules become due: do not retry at every wait.
        if time.monotonic() >= self._retry_at:
            try:
                woken = self._listen(deadline)
            except redis.RedisError as error:
                logger.warning("Not receiving wake-ups of %s; polling instead: %s", self._channel, error)
                self._retry_at = time.monotonic() + PAUSE_AFTER_ERROR_SECONDS
                self.close()
        if not woken:
            # An absent Redis fails at once: without this sleep the caller would spin.
            time.sleep(max(0.0, deadline - time.monotonic()))
        return woken

    def _listen(self, deadline: float) -> bool:
        if self._subscription is None:
            self._subscription = self._redis.pubsub()  # type: ignore[no-untyped-call]
            self._subscription.subscribe(self._channel)
            self._ask(self._subscription)
        while (left := deadline - time.monotonic()) > 0:
            news = self._read_messages(self._subscription, min(left, PONG_SECONDS))
            self._check_connected(self._subscription)
            if CAPACITY_FREED in news:
                self._on_capacity_freed()
            if news - {CAPACITY_FREED}:
                return True
        return False

    def _read_messages(self, subscription: redis.client.PubSub, seconds: float) -> set[bytes]:
        """Read all pending messages, so that one wake-up serves them all."""
        news = set()
        message = subscription.get_message(timeout=seconds)
        while message is not None:
            if message["type"] == "message":
                news.add(message["data"])
            elif message["type"] == "pong":
                self._asked_at, self._answered_at = None, time.monotonic()
                self._connected_since = self._connected_since or self._answered_at
            message = subscription.get_message(timeout=0)
        return news

    def _check_connected(self, subscription: redis.client.PubSub) -> None:
        """Ping now and then: a frozen Redis keeps its connections open and is silent, like an idle one."""
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
        subscription, self._subscription, self._connected_since = self._subscription, None, None
        self._asked_at = None
        if subscription is not None:
            try:
                subscription.close()
            except redis.RedisError:
                logger.debug("Redis went away before the subscription was closed")


@lru_cache(maxsize=1)
def best_effort_redis() -> BestEffortRedis:
    """Return the shared client: all calls of a request together cost at most one timeout."""
    return BestEffortRedis(settings.PUNCTUAL_REDIS_URL)


def wake_beat() -> None:
    best_effort_redis().publish()


def notify_capacity_freed() -> None:
    best_effort_redis().publish(message=CAPACITY_FREED)


def worker_channel(worker_id: UUID) -> str:
    return f"punctual:worker:{worker_id}"


def wake_worker(worker_id: UUID) -> None:
    """Notify a worker of new work or of a stop order."""
    best_effort_redis().publish(worker_channel(worker_id))


def log_channel(execution_id: UUID) -> str:
    return f"punctual:log:{execution_id}"


def wake_log_followers(execution_id: UUID) -> None:
    """Notify the followers of a log that it has grown or is complete."""
    best_effort_redis().publish(log_channel(execution_id))
