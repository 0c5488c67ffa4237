"""One Redis subscription for all waiters of this process, which then need no connection and no thread each.

A wake-up is a hint. Without Redis, waiters poll the database after their pause; once Redis is back, all of them are
woken, because wake-ups may have been missed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

import redis.asyncio
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from jobs.db.wakeups import PAUSE_AFTER_ERROR_SECONDS, PING_SECONDS, PONG_SECONDS

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 1.0
# How long a new waiter waits for Redis to confirm its subscription before it polls again.
SUBSCRIBE_TIMEOUT_SECONDS = 0.2
# A connection must subscribe to something before it can be read.
KEEPALIVE_CHANNEL = b"punctual:web"


class WakeupSubscription:
    """One waiter's subscription to one channel; a wake-up between two waits ends the next one."""

    def __init__(self, hub: WakeupHub, channel: bytes, linger_seconds: float) -> None:
        self._hub = hub
        self._channel = channel
        self._linger_seconds = linger_seconds
        # Whether a wake-up may have come before this subscription.
        self.missed = True
        self._woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)

    def clear(self) -> None:
        """Forget a wake-up: its waiter has yet to read."""
        if self._woken.done():
            self._woken = asyncio.get_running_loop().create_future()

    async def wait(self, seconds: float, gone: asyncio.Future[None]) -> bool:
        """Wait; return early when woken or when the client is gone. Return whether it was woken."""
        await asyncio.wait((self._woken, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        woken = self._woken.done()
        self.clear()
        return woken

    def close(self) -> None:
        self._hub.unsubscribe(self._channel, self, self._linger_seconds, unread=self._woken.done())


@dataclass(slots=True)
class LingeringChannel:
    """A channel that stays subscribed for a moment after its last waiter left."""

    end: asyncio.TimerHandle
    woken: bool  # since the last waiter read


class WakeupHub:
    def __init__(self, url: str) -> None:
        self._url = url
        self._subscriptions: dict[bytes, set[WakeupSubscription]] = {}
        self._confirmed: dict[bytes, asyncio.Event] = {}
        self._lingering: dict[bytes, LingeringChannel] = {}
        self._changed = asyncio.Event()
        self._connected = False
        self._pinged_at: float | None = None  # None: Redis has answered
        self._running: asyncio.Task[None] | None = None

    async def subscribe(self, channel: str, *, linger_seconds: float = 0) -> WakeupSubscription:
        """Subscribe to a channel; return once Redis has confirmed it, or after a short timeout.

        `linger_seconds`: how long the channel stays subscribed afterwards, for the next waiter.
        """
        name = channel.encode()
        subscription = WakeupSubscription(self, name, linger_seconds)
        self._subscriptions.setdefault(name, set()).add(subscription)
        confirmed = self._confirmed.setdefault(name, asyncio.Event())
        if (lingering := self._lingering.pop(name, None)) is not None:
            lingering.end.cancel()
            if confirmed.is_set():
                subscription.missed = lingering.woken
                return subscription
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        elif not self._connected:
            return subscription
        if not confirmed.is_set():
            self._changed.set()
            try:
                async with asyncio.timeout(SUBSCRIBE_TIMEOUT_SECONDS):
                    await confirmed.wait()
            except TimeoutError:
                logger.debug("Redis has not confirmed the subscription to %s yet", channel)
            else:
                subscription.clear()
        return subscription

    def unsubscribe(
        self, channel: bytes, subscription: WakeupSubscription, linger_seconds: float, *, unread: bool
    ) -> None:
        remaining = self._subscriptions.get(channel, set())
        remaining.discard(subscription)
        if not remaining and linger_seconds > 0 and self._connected:
            end = asyncio.get_running_loop().call_later(linger_seconds, self._end_lingering, channel)
            self._lingering[channel] = LingeringChannel(end, unread)
        elif not remaining:
            self._drop(channel)

    def _end_lingering(self, channel: bytes) -> None:
        del self._lingering[channel]
        self._drop(channel)

    def _drop(self, channel: bytes) -> None:
        if self._subscriptions.pop(channel, None) is not None:
            self._changed.set()
            if not self._connected:
                self._confirmed.pop(channel, None)

    async def _run(self) -> None:
        while True:
            try:
                await self._serve()
            except* (redis.RedisError, OSError) as failed:
                logger.warning("Cannot receive wake-ups; waiters poll meanwhile: %s", _find_first_error(failed))
            except* Exception:
                logger.exception("Cannot receive wake-ups; waiters poll meanwhile")
            self._connected = False
            for confirmed in self._confirmed.values():
                confirmed.clear()
            await asyncio.sleep(PAUSE_AFTER_ERROR_SECONDS)

    async def _serve(self) -> None:
        client = redis.asyncio.Redis.from_url(
            self._url, socket_connect_timeout=CONNECT_TIMEOUT_SECONDS, retry=Retry(NoBackoff(), 0)
        )
        async with client, client.pubsub() as pubsub:
            await pubsub.subscribe(KEEPALIVE_CHANNEL)
            self._connected, self._pinged_at = True, None
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(pubsub))
                tasks.create_task(self._keep_subscribed(pubsub))

    async def _read(self, pubsub: PubSub) -> None:
        while True:
            message = await pubsub.get_message(timeout=PONG_SECONDS)
            if message is None:
                if self._pinged_at is not None and time.monotonic() - self._pinged_at > PONG_SECONDS:
                    raise redis.TimeoutError(f"Redis has not answered for {PONG_SECONDS:g} s")
                continue
            match message["type"]:
                case "message":
                    self.wake(message["channel"])
                case "subscribe":
                    self._confirm(message["channel"])
                case "pong":
                    self._pinged_at = None

    def _confirm(self, channel: bytes) -> None:
        confirmed = self._confirmed.get(channel)
        if confirmed is not None:
            confirmed.set()
            # Wake-ups before the confirmation were missed.
            self.wake(channel)

    def wake(self, channel: bytes) -> None:
        if (lingering := self._lingering.get(channel)) is not None:
            lingering.woken = True
        for subscription in self._subscriptions.get(channel, ()):
            subscription.wake()

    async def _keep_subscribed(self, pubsub: PubSub) -> None:
        """Keep the channels subscribed that waiters want; the only task that writes to Redis."""
        subscribed: set[bytes] = set()
        while True:
            self._changed.clear()
            wanted = set(self._subscriptions)
            new, old = wanted - subscribed, subscribed - wanted
            # Before the first await: a new waiter must not rely on a subscription that is about to end.
            for channel in self._confirmed.keys() - wanted:
                del self._confirmed[channel]
            subscribed = wanted
            if new:
                await pubsub.subscribe(*new)
            if old:
                await pubsub.unsubscribe(*old)
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                if self._pinged_at is None:
                    self._pinged_at = time.monotonic()
                    await pubsub.ping()


def _find_first_error(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failed.exceptions[0]
    return _find_first_error(first) if isinstance(first, BaseExceptionGroup) else first
