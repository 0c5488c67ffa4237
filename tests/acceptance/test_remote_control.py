"""Celery's remote control and Flower inspect a real worker; neither can stop or change it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import redis
from celery import Celery

from tests.support.stack import Stack
from tests.support.waiting import wait_for


@dataclass(frozen=True)
class Remote:
    stack: Stack
    app: Celery
    client: redis.Redis
    flower: httpx.Client
    node: str  # the worker's name for Celery

    def order(self, command: str, **arguments: object) -> Any:
        """The worker's answer to a remote control command."""
        replies = self.app.control.broadcast(
            command, arguments=arguments, destination=[self.node], reply=True, timeout=5, limit=1
        )
        return (replies or [{}])[0].get(self.node, {})


@pytest.fixture(scope="module")
def remote(stack: Stack) -> Iterator[Remote]:
    url = stack.process("worker").environ()["REDIS_URL"]
    credentials = stack.credentials
    with (
        redis.Redis.from_url(url) as client,
        Celery("test", broker=url) as app,
        httpx.Client(
            base_url=credentials["flower_url"],
            auth=(credentials["flower_user"], credentials["flower_password"]),
            timeout=20,
        ) as flower,
    ):
        (node,) = (app.control.ping(timeout=5) or [{}])[0]
        yield Remote(stack, app, client, flower, node)


@pytest.fixture
def run(remote: Remote) -> Iterator[dict[str, Any]]:
    """An `at_most_once` run, which must end well on the same worker process, whatever the test does meanwhile."""
    stack = remote.stack
    worker = stack.process("worker")
    job = stack.submit(
        name="undisturbed", runtime="bash", script="sleep 8; echo done", delivery="at_most_once", max_concurrency=None
    )

    def running() -> dict[str, Any] | None:
        return next((e for e in stack.executions(job) if e["status"] == "running"), None)

    execution = wait_for(running, "it runs", seconds=30)
    assert execution is not None
    yield execution
    ended = stack.wait_for_end(job)
    assert (ended["status"], ended["attempt"]) == ("succeeded", 1)
    assert stack.process("worker").pid == worker.pid
    assert "error" not in remote.order("ping")


def test_remote_control_cannot_stop_or_change_a_worker(remote: Remote, run: dict[str, Any]) -> None:
    task_id = f"{run['id']}-{run['attempt']}"
    queue = f"worker.{run['worker_id']}"
    orders: dict[str, dict[str, object]] = {
        "shutdown": {},
        "revoke": {"task_id": task_id, "terminate": True, "signal": "SIGKILL"},
        "terminate": {"task_id": task_id, "signal": "SIGKILL"},
        "revoke_by_stamped_headers": {"headers": {"a": "b"}, "terminate": True},
        "cancel_consumer": {"queue": queue},
        "add_consumer": {"queue": "another"},
        "pool_shrink": {"n": 100},
        "pool_grow": {"n": 100},
        "pool_restart": {},
        "autoscale": {"max": 1, "min": 1},
        "rate_limit": {"task_name": "workers.celery.tasks.run", "rate_limit": "1/h"},
        "time_limit": {"task_name": "workers.celery.tasks.run", "hard": 1},
        "disable_events": {},
        "election": {"id": "1", "topic": "x"},
        "report": {},
        "no_such_command": {},
    }
    for command, arguments in orders.items():
        answer = remote.order(command, **arguments)
        assert "PUT /api/v1/executions/{id}/cancel" in answer.get("error", ""), (command, answer)
    # Merging lists of revoked tasks is what workers do when they meet.
    remote.order("hello", from_node="other", revoked={task_id: 1e12})
    # A system task that expired is listed, too.
    assert task_id not in remote.order("revoked")


def test_remote_control_still_inspects(remote: Remote, run: dict[str, Any]) -> None:
    assert remote.order("ping") == {"ok": "pong"}
    assert remote.order("stats")["pid"] == remote.stack.process("worker").pid
    assert [task["id"] for task in remote.order("active")] == [f"{run['id']}-{run['attempt']}"]
    assert f"worker.{run['worker_id']}" in {queue["name"] for queue in remote.order("active_queues")}
    assert remote.order("registered")


def test_the_configuration_that_a_worker_shows_has_no_password(remote: Remote) -> None:
    environment = remote.stack.process("worker").environ()
    shown = json.dumps([remote.order("conf"), remote.order("conf", with_defaults=True), remote.order("stats")])
    assert "CELERY_BROKER_URL" in shown
    for secret in ("REDIS_URL", "DATABASE_URL", "SECRET_KEY", "S3_SECRET_ACCESS_KEY", "PUNCTUAL_SECRETS_KEYS"):
        value = environment[secret]
        password = httpx.URL(value).password if "://" in value else value
        assert password, secret
        assert password not in shown, secret


def test_flower_shows_workers_and_cannot_command_them(remote: Remote, run: dict[str, Any]) -> None:
    flower, node, task_id = remote.flower, remote.node, f"{run['id']}-{run['attempt']}"
    wait_for(lambda: node in flower.get("/api/workers", params={"refresh": 1}).text, "Flower knows it", seconds=30)
    for path in (
        f"/api/worker/shutdown/{node}",
        f"/api/worker/pool/shrink/{node}?n=100",
        f"/api/worker/pool/restart/{node}",
        f"/api/worker/queue/cancel-consumer/{node}?queue=worker.{run['worker_id']}",
        f"/api/task/revoke/{task_id}?terminate=true",
        "/api/task/send-task/jobs.retain",
    ):
        answer = flower.post(path, json={})
        assert answer.status_code == 403, (path, answer.text)
        assert "Read only mode is enabled" in answer.text
    wait_for(lambda: flower.get(f"/task/{task_id}").status_code == 200, "Flower knows the task", seconds=30)
    assert "Terminate" not in flower.get(f"/task/{task_id}").text
    assert "Shut Down" not in flower.get(f"/worker/{node}").text


def control_message(content: object, **changes: object) -> bytes:
    return json.dumps(
        {
            "body": base64.b64encode(json.dumps(content).encode()).decode(),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {"clock": 1, "expires": None},
            "properties": {
                "delivery_mode": 2,
                "delivery_info": {"exchange": "celery.pidbox", "routing_key": ""},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": "1",
            },
            **{name.replace("_", "-"): value for name, value in changes.items()},
        }
    ).encode()


def nonsense() -> list[bytes]:
    return [
        os.urandom(64),
        b"",
        b"[" * 100_000,
        b"{}",
        control_message({})[:50],
        control_message(5),
        control_message([]),
        control_message({}),
        control_message({"method": ["ping"]}),
        control_message({"method": "ping", "arguments": 5}),
        control_message({"method": "ping", "destination": 5}),
        control_message({"method": "ping", "reply_to": 5}),
        control_message({"method": "ping", "reply_to": {"exchange": "", "routing_key": "not-a-list"}, "ticket": "1"}),
        control_message({"method": "ping", "pattern": "(a|a)*" * 20 + "b", "matcher": "pcre"}),
        control_message({"method": "ping", "arguments": {"self": 1, "state": 2}}),
        control_message({"method": "x" * 1_000_000}),
        control_message({"method": "shutdown"}),
        control_message({"method": "ping"}, headers=None),
        control_message({"method": "ping"}, headers={"clock": "soon"}),
        control_message({"method": "ping"}, headers={"clock": 10**400}),
        control_message({"method": "ping"}, headers={"expires": "soon"}),
        control_message({"method": "ping"}, properties=None),
        control_message({"method": "ping"}, content_type="application/x-python-serialize"),
        control_message({"method": "ping"}, body="!"),
    ]


def test_nonsense_in_the_mailbox_does_not_disturb_a_worker(remote: Remote, run: dict[str, Any]) -> None:
    # A reply to it fails in Redis: it is no list.
    remote.client.set("not-a-list", "text")
    for message in nonsense():
        assert remote.client.publish("/0.celery.pidbox", message) >= 1
    assert remote.order("ping") == {"ok": "pong"}
    remote.client.delete("not-a-list")
