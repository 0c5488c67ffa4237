"""Wakes beat through Redis when something new may be done at once.

A wake-up is a hint: without it beat looks by itself within half a second. So nothing here may fail or delay its caller:
short time-outs, and after an error no further try for a moment.
"""

from __future__ import annotations

import logging
import time
from functools import lru_cache

import redis
from django.conf import settings

logger = logging.getLogger(__name__)

CHANNEL = "punctual:wake"
TIMEOUT_SECONDS = 0.05
LISTEN_TIMEOUT_SECONDS = 0.25
PAUSE_AFTER_ERROR_SECONDS = 1.0


class Waker:
    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS)
        self._quiet_until = 0.0

    def wake(self) -> None:
        if time.monotonic() < self._quiet_until:
            return
        try:
            self._redis.publish(CHANNEL, b"1")
        except redis.RedisError as error:
            self._quiet_until = time.monotonic() + PAUSE_AFTER_ERROR_SECONDS
            logger.warning("Beat was not woken, it will look by itself: %s", error)


class WakeListener:
    """Beat's ear. `wait` returns early when somebody wakes it, and never much later than asked."""

    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(
            url,
            # A frozen Redis must not hold up beat: what is due does not wait for it.
            socket_timeout=LISTEN_TIMEOUT_SECONDS,
            socket_connect_timeout=LISTEN_TIMEOUT_SECONDS,
            health_check_interval=10,
        )
        self._subscription: redis.client.PubSub | None = None

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        try:
            woken = self._listen(deadline)
        except redis.RedisError as error:
            logger.warning("Beat cannot hear wake-ups and looks by itself meanwhile: %s", error)
            self.close()
            woken = False
        if not woken:
            # An absent Redis answers at once: without this, beat would spin.
            time.sleep(max(0.0, deadline - time.monotonic()))
        return woken

    def _listen(self, deadline: float) -> bool:
        if self._subscription is None:
            self._subscription = self._redis.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
            self._subscription.subscribe(CHANNEL)
        while (left := deadline - time.monotonic()) > 0:
            if self._subscription.get_message(timeout=left) is not None:
                # One look serves every wake-up that has come meanwhile.
                while self._subscription.get_message(timeout=0) is not None:
                    pass
                return True
        return False

    def close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            try:
                subscription.close()
            except redis.RedisError:
                logger.debug("Redis went away before the subscription was closed")


@lru_cache(maxsize=1)
def _waker() -> Waker:
    return Waker(settings.PUNCTUAL_REDIS_URL)


def wake_beat() -> None:
    _waker().wake()
