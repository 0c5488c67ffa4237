"""A real worker while Redis restarts empty, freezes, is flushed or holds nonsense, and when its consumer goes silent.

Work may be late, never lost and never twice: every execution ends once, its attempts follow each other, nothing stays
allocated.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psutil
import psycopg
import pytest
import redis
from celery import Celery

from jobs.dispatch.broker import BrokerSender
from jobs.domain.messages import RUN_TASK, Publication, worker_queue
from tests.support.stack import ROOT, Stack
from tests.support.waiting import wait_for

SCHEDULES, INSTANTS = 4, 8
RESTARTS = 5
# Longer than any time-out of the worker's own connection.
FROZEN_SECONDS = 7.0


@dataclass(frozen=True)
class Broker:
    """The stack's Redis, its only worker, and Celery's view of both."""

    stack: Stack
    url: str
    database: str
    app: Celery
    client: redis.Redis
    worker_id: UUID

    @property
    def queue(self) -> str:
        return worker_queue(self.worker_id)

    def kill(self) -> None:
        """The supervisor starts it again, with nothing in it."""
        running = wait_for(self._process, "Redis is up", seconds=60)
        assert running is not None
        self.client.flushall()
        running.kill()
        wait_for(self._answers, "Redis is back", seconds=60)

    def _process(self) -> psutil.Process | None:
        """The supervisor takes a moment to believe that it stays up."""
        try:
            return self.stack.process("valkey")
        except AssertionError:
            return None

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()


@pytest.fixture(scope="module")
def broker(stack: Stack) -> Iterator[Broker]:
    environment = stack.process("worker").environ()
    url = environment["REDIS_URL"]
    online = stack.api.get("/workers", params={"status": "online"}).json()["results"]
    with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2) as client:
        app = Celery("test", broker=url)
        yield Broker(stack, url, environment["DATABASE_URL"], app, client, UUID(online[0]["id"]))
        app.close()


def run_something(stack: Stack, name: str, *, seconds: float = 60) -> dict[str, Any]:
    execution = stack.wait_for_end(stack.submit(name=name, runtime="bash", script="echo done"), seconds=seconds)
    assert (execution["status"], execution["attempt"]) == ("succeeded", 1), execution
    return execution


def check_sound(broker: Broker, job: dict[str, Any], *, count: int) -> None:
    """Every execution of the job succeeded, by one attempt, and no two attempts of one ran at once."""
    ended = broker.rows("SELECT state, count(*) FROM jobs_execution WHERE job_id = %s GROUP BY state", job["id"])
    assert ended == [("succeeded", count)]
    finishes = broker.rows(
        "SELECT e.id, count(*) FILTER (WHERE a.reason = 'exit'), count(*) FILTER (WHERE a.ended_at IS NULL)"
        " FROM jobs_execution e JOIN jobs_attempt a ON a.execution_id = e.id WHERE e.job_id = %s GROUP BY e.id",
        job["id"],
    )
    assert [row for row in finishes if row[1:] != (1, 0)] == []
    overlapping = broker.rows(
        "SELECT a.execution_id FROM jobs_attempt a JOIN jobs_attempt b ON b.execution_id = a.execution_id"
        " AND b.number > a.number AND b.claimed_at < a.ended_at"
        " JOIN jobs_execution e ON e.id = a.execution_id WHERE e.job_id = %s",
        job["id"],
    )
    assert overlapping == []
    allocated = broker.rows(
        "SELECT id, state FROM jobs_execution WHERE job_id = %s AND (state IN ('queued', 'claimed', 'running'))",
        job["id"],
    )
    assert allocated == []


def restart_empty(broker: Broker) -> None:
    for _ in range(RESTARTS):
        broker.kill()


def freeze(broker: Broker) -> None:
    frozen = broker.stack.process("valkey")
    frozen.send_signal(signal.SIGSTOP)
    try:
        until = time.monotonic() + FROZEN_SECONDS
        wait_for(lambda: time.monotonic() > until, "it was frozen for a while")
    finally:
        frozen.send_signal(signal.SIGCONT)


def flush(broker: Broker) -> None:
    until = time.monotonic() + 3

    def flushed() -> bool:
        broker.client.flushall()
        return time.monotonic() > until

    wait_for(flushed, "it was flushed for a while")


@pytest.mark.parametrize("harm", [restart_empty, freeze, flush])
def test_under_load_nothing_is_lost_and_nothing_runs_twice(broker: Broker, harm: Callable[[Broker], None]) -> None:
    stack = broker.stack
    job = stack.submit(
        name=f"stream-{harm.__name__}",
        runtime="bash",
        script="sleep 0.2; echo $PUNCTUAL_EXECUTION_ID",
        max_concurrency=None,
        schedules=[{"every_seconds": 1, "max_count": INSTANTS, "catch_up": "all"} for _ in range(SCHEDULES)],
    )
    count = SCHEDULES * INSTANTS

    def ended() -> int:
        return sum(e["status"] == "succeeded" for e in stack.executions(job))

    wait_for(lambda: ended() >= 2, "some have run", seconds=60)
    harm(broker)
    wait_for(lambda: ended() == count, f"all have run after {harm.__name__}", seconds=90)
    check_sound(broker, job, count=count)


def test_a_run_at_most_once_outlives_redis_that_dies_with_a_message_unacknowledged(broker: Broker) -> None:
    stack, worker = broker.stack, broker.stack.process("worker")
    job = stack.submit(name="once", runtime="bash", script="sleep 15; echo done", delivery="at_most_once")
    wait_for(lambda: any(each["status"] == "running" for each in stack.executions(job)), "it runs", seconds=60)
    # Celery keeps what is not due yet, and acknowledges it then.
    broker.app.send_task(RUN_TASK, [str(uuid4()), 1], queue=broker.queue, countdown=3600)
    wait_for(lambda: broker.client.llen(broker.queue) == 0 and broker.client.hlen("unacked"), "it is kept")
    broker.kill()
    execution = stack.wait_for_end(job)
    assert (execution["status"], execution["attempt"]) == ("succeeded", 1), execution
    assert stack.process("worker").pid == worker.pid, "it did not restart"
    run_something(stack, "after it")


@pytest.fixture
def silenceable(broker: Broker, tmp_path: Path) -> Iterator[tuple[psutil.Process, dict[str, Any]]]:
    """A second worker, whose consumer goes deaf on SIGUSR2, and how the API shows it."""
    stack, name = broker.stack, "silenceable"
    settings = {
        "PUNCTUAL_WORKER_NAME": name,
        "PUNCTUAL_WORKER_STATE_DIR": str(tmp_path / "state"),
        "PUNCTUAL_WORKER_SLOTS": "1",
    }
    words = ("-A", "tests.acceptance.silenceable", "worker", "-n", f"{name}@%h", "--without-mingle", "--without-gossip")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", *words],
            cwd=ROOT,
            env={**stack.process("worker").environ(), **settings},
            stdout=log,
            stderr=log,
        )

    def online() -> dict[str, Any] | None:
        shown = stack.api.get("/workers", params={"status": "online"}).raise_for_status().json()["results"]
        return next((worker for worker in shown if worker["name"] == name), None)

    try:
        worker = wait_for(online, f"{name} is online", seconds=60)
        assert worker is not None
        yield psutil.Process(process.pid), worker
    finally:
        process.terminate()
        process.wait(60)


def test_a_consumer_that_went_silent_consumes_again_by_itself(
    broker: Broker, silenceable: tuple[psutil.Process, dict[str, Any]]
) -> None:
    stack, (process, worker) = broker.stack, silenceable
    node, queue = f"silenceable@{socket.gethostname()}", worker_queue(UUID(worker["id"]))

    def consumed() -> set[str]:
        queues = broker.app.control.inspect(destination=[node], timeout=5).active_queues() or {}
        return {queue["name"] for queue in queues.get(node, [])}

    wait_for(lambda: queue in consumed(), "it consumes", seconds=20)
    process.send_signal(signal.SIGUSR2)
    wait_for(lambda: queue not in consumed(), "it consumes no more", seconds=20)
    assert broker.app.control.ping(destination=[node], timeout=5), "and yet it answers"
    began = time.monotonic()
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    job = stack.submit(name="unnoticed", runtime="bash", script="echo done", schedules=[{"at": tomorrow.isoformat()}])
    stack.api.post(f"/jobs/{job['id']}/execute", json={"worker_id": worker["id"]}).raise_for_status()
    execution = stack.wait_for_end(job, seconds=45)
    print(f"run {time.monotonic() - began:.1f} s after it went silent")
    assert (execution["status"], execution["attempt"], execution["worker_id"]) == ("succeeded", 1, worker["id"])
    assert process.is_running(), "without leaving"


def test_a_suspect_that_takes_messages_is_trusted_again_by_itself(broker: Broker) -> None:
    suspected = "UPDATE jobs_worker SET status = 'suspect' WHERE id = %s RETURNING usage ->> 'taken'"
    ((before,),) = broker.rows(suspected, broker.worker_id)

    def worker() -> dict[str, Any]:
        shown: dict[str, Any] = broker.stack.api.get(f"/workers/{broker.worker_id}").json()
        return shown

    wait_for(lambda: worker()["status"] == "online", "a probe came through", seconds=45)
    assert worker()["usage"]["taken"] > int(before or 0)
    run_something(broker.stack, "trusted")


def nonsense(queue: str) -> dict[str, bytes]:
    """Everything that is no message, in order of how far it gets."""
    body = base64.b64encode(json.dumps([[str(uuid4()), 1], {}, {}]).encode()).decode()
    sound: dict[str, Any] = {
        "body": body,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": RUN_TASK, "id": "1", "lang": "py", "argsrepr": "", "kwargsrepr": ""},
        "properties": {
            "correlation_id": "1",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": "1",
        },
    }

    def but(**changes: object) -> bytes:
        return json.dumps({**sound, **{name.replace("_", "-"): value for name, value in changes.items()}}).encode()

    def tagged(**changes: object) -> dict[str, object]:
        return {**sound["properties"], "delivery_tag": str(uuid4()), **changes}

    def headed(**changes: object) -> dict[str, object]:
        return {**sound["headers"], **changes}

    def bodied(value: object) -> str:
        return base64.b64encode(json.dumps(value).encode()).decode()

    return {
        "bytes": os.urandom(64),
        "nothing": b"",
        "half a message": but()[:100],
        "a number": b"1",
        "a list": b"[1, 2, 3]",
        "an empty object": b"{}",
        "deep nesting": b"[" * 100_000,
        "no properties": but(properties=None),
        "no tag": but(properties={"delivery_info": {}}),
        "a tag that is a list": but(properties=tagged(delivery_tag=[])),
        "no delivery information": but(properties=tagged(delivery_info=None)),
        "a body that is not base64": but(properties=tagged(), body="!"),
        "an unknown encoding": but(properties=tagged(body_encoding="rot13")),
        "a body that is a number": but(properties=tagged(), body=5),
        "no headers": but(properties=tagged(), headers=None),
        "headers that are a list": but(properties=tagged(), headers=[]),
        "a wrong content type": but(properties=tagged(), content_type="application/x-python-serialize"),
        "an unknown content type": but(properties=tagged(), content_type="x/y"),
        "an unknown task": but(properties=tagged(), headers=headed(task="os.system")),
        "a task that is a list": but(properties=tagged(), headers=headed(task=[])),
        "an id that is a list": but(properties=tagged(), headers=headed(id=[])),
        "an id of a megabyte": but(properties=tagged(), headers=headed(task="unknown", id="x" * 1_000_000)),
        "a body of another shape": but(properties=tagged(), body=bodied(5)),
        "an empty body": but(properties=tagged(), body=bodied([])),
        "a body of a megabyte": but(properties=tagged(), body=bodied([["x" * 1_000_000, 1], {}, {}])),
        "wrong arguments": but(properties=tagged(), body=bodied([[1, "x", None], {"y": 1}, {}])),
        "an eta that is none": but(properties=tagged(), headers=headed(eta="soon")),
        "an id that is none": but(properties=tagged(), body=bodied([["nobody", 1], {}, {}])),
    }


def test_nonsense_in_its_queue_does_not_disturb_a_worker(broker: Broker) -> None:
    worker = broker.stack.process("worker")
    for each in nonsense(broker.queue).values():
        # More than a worker would prefetch: none of them may count for ever.
        broker.client.lpush(broker.queue, *[each] * 20)
    began, cpu = time.monotonic(), sum(worker.cpu_times()[:2])
    wait_for(lambda: broker.client.llen(broker.queue) == 0, "it was all taken", seconds=60)
    run_something(broker.stack, "undisturbed")
    print(f"{time.monotonic() - began:.1f} s, {sum(worker.cpu_times()[:2]) - cpu:.1f} s of cpu")
    assert broker.stack.process("worker").pid == worker.pid, "it did not restart"
    wait_for(lambda: broker.client.hlen("unacked") == 0, "none is kept to be delivered again", seconds=10)


def test_repeated_late_and_unknown_messages_run_nothing(broker: Broker) -> None:
    stack, sender = broker.stack, BrokerSender(broker.app)
    job = stack.submit(name="announced", runtime="bash", script="sleep 2; echo once")
    execution = wait_for(lambda: next(iter(stack.executions(job)), None), "it is there")
    assert execution is not None
    own = UUID(execution["id"])

    def send(execution_id: UUID, attempt: int) -> None:
        sender.send([Publication(execution_id, attempt, broker.worker_id, "again")] * 10)

    for attempt in (1, 2, 3):
        send(own, attempt)
    send(uuid4(), 1)
    ended = stack.wait_for_end(job)
    for attempt in (1, 2, 2**31):
        send(own, attempt)
    wait_for(lambda: broker.client.llen(broker.queue) == 0, "all were taken")
    sender.close()
    run_something(stack, "after them")
    check_sound(broker, job, count=1)
    assert (ended["status"], ended["attempt"], stack.log(ended)) == ("succeeded", 1, "once\n")
    assert len(stack.api.get(f"/executions/{own}/attempts").json()["results"]) == 1
