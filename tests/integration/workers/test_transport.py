"""Kombu connections over our transport while a real Valkey dies."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from kombu import Connection, Consumer, Exchange, Queue
from redis import Redis

from jobs.domain.messages import worker_queue
from scheduler_project.celery import app
from scheduler_project.localstack.engines.standalone import Engines
from tests.support.waiting import wait_for

QUEUE = Queue("transport-test", Exchange("transport-test"), routing_key="transport-test")
MAILBOX = Queue("transport-test-mailbox", Exchange("transport-test-mailbox", type="fanout"), auto_delete=True)


@pytest.fixture
def valkey_down(engines: Engines) -> Iterator[Any]:
    """Kill Valkey when called; it is up again after the test."""
    yield engines.valkey.kill
    if not engines.valkey.is_running():
        engines.valkey.start()


def receive_without_ack(connection: Connection, queue: Queue = QUEUE) -> Any:
    """Put a connection into the state of a busy worker: one unacknowledged message, waiting for the next,
    and a second channel that listens for remote control."""
    received: list[Any] = []
    channel: Any = connection.default_channel
    channel.basic_qos(0, 1, False)
    Consumer(channel, [queue], accept=["json"], callbacks=[lambda _, message: received.append(message)]).consume()
    connection.Producer().publish({}, exchange="", routing_key=queue.name)

    def receive() -> bool:
        connection.drain_events(timeout=5)
        return bool(received)

    wait_for(receive, "the message arrives")
    Consumer(connection.channel(), [MAILBOX], no_ack=True).consume()
    wait_for(lambda: is_idle(connection), "both channels listen")
    return received[0]


def is_idle(connection: Connection) -> bool:
    try:
        connection.drain_events(timeout=0.2)
    except TimeoutError:
        return True
    return False


def test_connection_with_unacknowledged_message_closes_after_redis_died(valkey_down: Any) -> None:
    """Celery's consumer calls both, and an error in `close` stops the worker."""
    assert app.conf.broker_url == settings.CELERY_BROKER_URL
    connection = Connection(settings.CELERY_BROKER_URL)
    receive_without_ack(connection)
    transport: Any = connection.transport
    channels = list(transport.channels)
    assert len(channels) == 2
    valkey_down()
    connection.collect(socket_timeout=1)
    connection.close()
    assert transport.channels == []
    assert [channel.closed for channel in channels] == [True, True]


def test_acknowledging_on_closed_connection_raises_connection_error(
    valkey_down: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Pool threads acknowledge their messages even after the consumer has closed the connection."""
    connection = Connection(settings.CELERY_BROKER_URL)
    message = receive_without_ack(connection)
    valkey_down()
    connection.collect(socket_timeout=1)
    connection.close()
    logger = logging.getLogger(__name__)
    message.ack_log_error(logger, errors=connection.connection_errors)
    assert "Couldn't ack" in caplog.text


@pytest.mark.parametrize(("queue", "recorded"), [(worker_queue(uuid4()), False), ("transport-test-system", True)])
def test_redis_keeps_no_record_of_a_message_that_beat_would_send_again(queue: str, recorded: bool) -> None:
    connection = Connection(settings.CELERY_BROKER_URL)
    message = receive_without_ack(connection, Queue(queue, Exchange(queue), routing_key=queue))
    channel: Any = connection.default_channel
    with Redis.from_url(settings.CELERY_BROKER_URL) as client:
        assert client.hexists(channel.unacked_key, message.delivery_tag) is recorded
        assert not channel.qos.can_consume_max_estimate(), "it counts against the prefetch limit"
        message.ack()
        assert channel.qos.can_consume_max_estimate() == 1
        assert not client.hexists(channel.unacked_key, message.delivery_tag)
    connection.close()
