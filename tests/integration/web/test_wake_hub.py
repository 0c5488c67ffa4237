"""One subscription wakes all waiters, and a missing, frozen or restarted Redis delays none."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest
import redis
from django.conf import settings

from scheduler_project.localstack.engines.standalone import Engines
from scheduler_project.web.wakeup_hub import KEEPALIVE_CHANNEL, SUBSCRIBE_TIMEOUT_SECONDS, WakeupHub
from tests.integration.web.exchange import until

LONG = 10.0


@pytest.fixture
def url(engines: Engines) -> str:
    return str(settings.PUNCTUAL_REDIS_URL)


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url) as client:
        yield client


def never() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def seconds_of_wait(subscription: object, seconds: float = LONG) -> float:
    began = time.monotonic()
    await subscription.wait(seconds, never())  # type: ignore[attr-defined]
    return time.monotonic() - began


def connections_of_hub(client: redis.Redis) -> list[dict[str, str]]:
    return [each for each in client.client_list() if each["sub"] != "0"]


def test_hundreds_of_waiters_share_one_connection(url: str, client: redis.Redis) -> None:
    async def test() -> None:
        before = len(connections_of_hub(client))
        hub = WakeupHub(url)
        subscriptions = await asyncio.gather(*(hub.subscribe(f"punctual:test:{number}") for number in range(300)))
        assert len(connections_of_hub(client)) == before + 1
        for subscription in subscriptions:
            await subscription.wait(0.001, never())  # a wake-up may have come with the subscription
        waits = [asyncio.ensure_future(seconds_of_wait(subscription, 1.0)) for subscription in subscriptions]
        await asyncio.sleep(0)
        client.publish("punctual:test:7", b"1")
        durations = await asyncio.gather(*waits)
        assert [number for number, seconds in enumerate(durations) if seconds < 0.9] == [7]
        # A wake-up between two waits is not lost.
        client.publish("punctual:test:8", b"1")
        await until(subscriptions[8]._woken.done, "the wake-up was received")
        assert await seconds_of_wait(subscriptions[8]) < LONG / 2
        for subscription in subscriptions:
            subscription.close()
        await until(lambda: client.pubsub_channels("punctual:test:*") == [], "nothing is subscribed to")
        again = await hub.subscribe("punctual:test:7")
        assert client.pubsub_channels("punctual:test:*") == [b"punctual:test:7"]
        again.close()

    asyncio.run(test())


def test_lingering_channel_remembers_wakeups(url: str, client: redis.Redis) -> None:
    async def test() -> None:
        hub = WakeupHub(url)
        first = await hub.subscribe("punctual:test:linger", linger_seconds=30)
        assert first.missed, "there was no listener before"
        await first.wait(0.001, never())
        first.close()
        second = await hub.subscribe("punctual:test:linger", linger_seconds=30)
        assert not second.missed
        second.close()
        client.publish("punctual:test:linger", b"1")
        await until(lambda: hub._lingering[b"punctual:test:linger"].woken, "the wake-up was received")
        third = await hub.subscribe("punctual:test:linger", linger_seconds=30)
        assert third.missed
        third.wake()
        third.close()
        fourth = await hub.subscribe("punctual:test:linger", linger_seconds=0.01)
        assert fourth.missed, "the third was woken and did not read"
        fourth.close()
        await until(lambda: client.pubsub_channels("punctual:test:*") == [], "the time is up")

    asyncio.run(test())


def test_wait_ends_when_client_is_gone(url: str) -> None:
    async def test() -> None:
        subscription = await WakeupHub(url).subscribe("punctual:test:gone")
        await subscription.wait(0.001, never())
        gone = never()
        asyncio.get_running_loop().call_later(0.05, gone.set_result, None)
        began = time.monotonic()
        await subscription.wait(LONG, gone)
        assert time.monotonic() - began < LONG / 2

    asyncio.run(test())


def test_all_waiters_are_woken_when_redis_is_back(url: str, client: redis.Redis) -> None:
    async def test() -> None:
        hub = WakeupHub(url)
        subscription = await hub.subscribe("punctual:test:back")
        await subscription.wait(0.001, never())
        killed = [each for each in connections_of_hub(client) if hub._connected]
        for each in killed:
            client.client_kill_filter(_id=each["id"])
        assert await seconds_of_wait(subscription) < LONG / 2
        await until(lambda: client.pubsub_numsub("punctual:test:back")[0][1] == 1, "it listens again")
        client.publish("punctual:test:back", b"1")
        assert await seconds_of_wait(subscription) < LONG / 2

    asyncio.run(test())


@pytest.mark.parametrize("frozen", [True, False])
def test_waiters_do_not_wait_for_missing_redis(frozen: bool) -> None:
    async def test(port: int) -> None:
        hub = WakeupHub(f"redis://127.0.0.1:{port}/0")
        for _ in range(2):
            began = time.monotonic()
            subscription = await hub.subscribe("punctual:test:absent")
            assert time.monotonic() - began < SUBSCRIBE_TIMEOUT_SECONDS + 1
            assert 0.04 < await seconds_of_wait(subscription, 0.05) < 2

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if frozen:
            asyncio.run(test(port))
    if not frozen:
        asyncio.run(test(port))


def test_keepalive_channel_keeps_connection_without_waiters(url: str, client: redis.Redis) -> None:
    async def test() -> None:
        hub = WakeupHub(url)
        (await hub.subscribe("punctual:test:one")).close()
        await until(lambda: client.pubsub_channels("punctual:test:*") == [], "no subscriptions are left")
        assert client.pubsub_numsub(KEEPALIVE_CHANNEL)[0][1] >= 1

    asyncio.run(test())


def test_waiters_during_outage_leave_no_subscriptions() -> None:
    async def test() -> None:
        hub = WakeupHub("redis://127.0.0.1:1")
        for number in range(10):
            (await hub.subscribe(f"punctual:test:{number}")).close()
        assert hub._confirmed == {}
        hub._running.cancel()  # type: ignore[union-attr]

    asyncio.run(test())
