"""Run messages on real lists in Valkey: right queue, right content, no stale state after an error."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis
from celery import Celery
from django.conf import settings
from kombu.exceptions import OperationalError

from jobs.db.wakeups import worker_channel
from jobs.dispatch.broker import BrokerSender
from jobs.domain.messages import RUN_TASK, Publication, Transport, parse_run_message, worker_queue
from scheduler_project.celery import app
from scheduler_project.localstack.engines.standalone import Engines
from tests.support.waiting import wait_for


@pytest.fixture
def client(engines: Engines) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        client.flushall()
        yield client
        client.flushall()


@pytest.fixture
def sender(engines: Engines) -> Iterator[BrokerSender]:
    sender = BrokerSender(app)
    yield sender
    sender.close()


def publication(worker_id: UUID, attempt: int = 1, job_name: str = "report") -> Publication:
    return Publication(uuid4(), attempt, worker_id, job_name)


def messages(client: redis.Redis, worker_id: UUID) -> list[dict[str, Any]]:
    """Return the messages in the order in which a worker reads them: from the right."""
    raw: list[bytes] = client.lrange(worker_queue(worker_id), 0, -1)  # type: ignore[assignment]
    return [json.loads(text) for text in reversed(raw)]


def arguments(message: dict[str, Any]) -> list[object]:
    args, _kwargs, _embed = json.loads(base64.b64decode(message["body"]))
    return list(args)


def test_message_names_only_execution_and_attempt(client: redis.Redis, sender: BrokerSender) -> None:
    sent = publication(uuid4(), attempt=3)
    sender.send([sent])
    (message,) = messages(client, sent.worker_id)
    assert arguments(message) == [str(sent.execution_id), 3]
    assert parse_run_message(*arguments(message)) == sent.message
    headers = message["headers"]
    assert (headers["task"], headers["id"]) == (RUN_TASK, f"{sent.execution_id}-3")
    assert headers["ignore_result"] is True
    assert message["content-type"] == "application/json"


def test_shadow_name_is_bounded(client: redis.Redis, sender: BrokerSender) -> None:
    sent = publication(uuid4(), job_name="n" * 200)
    sender.send([sent])
    assert messages(client, sent.worker_id)[0]["headers"]["shadow"] == "n" * 60


def test_each_worker_gets_its_own_messages_in_order(client: redis.Redis, sender: BrokerSender) -> None:
    workers = [uuid4(), uuid4()]
    batch = [publication(workers[n % 2], attempt=n + 1) for n in range(20)]
    sender.send(batch)
    for worker_id in workers:
        expected = [p.attempt for p in batch if p.worker_id == worker_id]
        assert [arguments(m)[1] for m in messages(client, worker_id)] == expected


def test_batch_is_one_round_trip(client: redis.Redis, sender: BrokerSender) -> None:
    worker_id = uuid4()
    sender.send([publication(worker_id)])
    before = client.info("stats")["total_reads_processed"]
    sender.send([publication(worker_id) for _ in range(200)])
    after = client.info("stats")["total_reads_processed"]
    assert client.llen(worker_queue(worker_id)) == 201
    assert after - before < 50


def test_rest_worker_is_woken_and_gets_no_message(client: redis.Redis, sender: BrokerSender) -> None:
    asking, other = uuid4(), uuid4()
    with client.pubsub(ignore_subscribe_messages=True) as listener:  # type: ignore[no-untyped-call]
        listener.subscribe(worker_channel(asking))
        wait_for(
            lambda: dict(client.pubsub_numsub(worker_channel(asking))).popitem()[1] == 1, "the listener subscribes"
        )
        sender.send([Publication(uuid4(), 1, asking, "report", Transport.REST), publication(other)])
        assert wait_for(lambda: listener.get_message(timeout=0.1), "it is woken")
    assert (messages(client, asking), len(messages(client, other))) == ([], 1)


def test_wiped_redis_loses_no_binding(client: redis.Redis, sender: BrokerSender) -> None:
    worker_id = uuid4()
    sender.send([publication(worker_id)])
    client.flushall()
    sender.send([publication(worker_id, attempt=2)])
    assert [arguments(m)[1] for m in messages(client, worker_id)] == [2]


def test_next_batch_reconnects_after_a_cut_connection(client: redis.Redis, sender: BrokerSender) -> None:
    worker_id = uuid4()
    sender.send([publication(worker_id)])
    client.client_kill_filter(_type="normal", skipme=True)
    # The error is raised, or hidden by a reconnect of the client library.
    with suppress(OSError, OperationalError, redis.RedisError):
        sender.send([publication(worker_id, attempt=2)])
        client.delete(worker_queue(worker_id))
    sender.send([publication(worker_id, attempt=3)])
    assert arguments(messages(client, worker_id)[-1])[1] == 3


def test_absent_broker_raises_soon_and_leaves_nothing_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    absent = Celery("absent", broker=f"redis://127.0.0.1:{port}/0")
    absent.conf.broker_transport_options = settings.CELERY_BROKER_TRANSPORT_OPTIONS
    sender = BrokerSender(absent)
    with pytest.raises(OperationalError):
        sender.send([publication(uuid4())])
    assert sender._connection is None
    assert sender._producer is None


def test_channel_keeps_its_client_as_long_as_its_connections(engines: Engines) -> None:
    with app.connection_for_write() as connection:
        channel: Any = connection.default_channel
        kept = channel._create_client()
        assert channel._create_client() is kept
        assert kept.ping()
        channel._disconnect_pools()
        assert channel._create_client() is not kept
        assert channel._create_client().ping()


def test_close_is_idempotent(client: redis.Redis, sender: BrokerSender) -> None:
    sender.send([publication(uuid4())])
    sender.close()
    sender.close()
    sender.send([publication(uuid4())])
