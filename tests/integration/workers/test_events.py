"""Celery's task events reach Redis in batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import redis
from django.conf import settings
from kombu.asynchronous import Hub

from scheduler_project.celery import app
from scheduler_project.localstack.engines.standalone import Engines
from tests.support.waiting import wait_for
from workers.celery.events import EventFlushing


@pytest.fixture
def heard(engines: Engines) -> Iterator[redis.client.PubSub]:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client, client.pubsub() as heard:
        heard.psubscribe("*celeryev*")
        assert heard.get_message(timeout=10)
        yield heard


def test_events_are_sent_in_batches(heard: redis.client.PubSub) -> None:
    hub = Hub()
    with app.connection_for_write() as connection:
        dispatcher = app.events.Dispatcher(connection, buffer_group=["task"], on_send_buffered=pytest.fail)
        consumer = SimpleNamespace(hub=hub, timer=hub.timer, event_dispatcher=dispatcher)
        step = EventFlushing(consumer)
        step.start(consumer)
        for number in range(3):
            dispatcher.send("task-received", uuid=str(number))

        def message() -> dict[str, bytes] | None:
            hub.fire_timers()
            return heard.get_message(timeout=0.01)  # type: ignore[no-any-return]

        arrived = wait_for(message, "the events arrived", seconds=20)
        assert arrived is not None
        assert arrived["channel"].endswith(b"task.multi")
        assert len(json.loads(arrived["data"])["body"]) > 0
        step.stop(consumer)
        dispatcher.send("task-received", uuid="after")
        hub.fire_timers()
        assert heard.get_message(timeout=0.3) is None
    hub.close()
