"""The object store is away for two minutes, first frozen and then stopped, while everything else continues.

This costs time, but no try, no second run and no partial object; requests that need the store get 503.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.support.stack import Stack
from tests.support.waiting import wait_for

AWAY_SECONDS = 120.0
# For this part of the outage it accepts requests and does not respond.
FROZEN_SECONDS = 40.0
STORE = "seaweedfs"
# For the delayed runs once it is back.
BACK_SECONDS = 45.0
# Twice the timeout of the store, plus a margin for a busy machine.
REFUSED_WITHIN_SECONDS = 30.0
# Long enough to finish during the outage.
LEAVES_A_FILE = "echo ran; sleep 10; echo left > out/file"


@pytest.mark.timeout(300)
def test_two_minutes_without_the_object_store_cost_only_time(stack: Stack) -> None:
    cached = _program(stack)
    assert stack.wait_for_end(stack.submit(name="first", **cached))["status"] == "succeeded"
    warm = stack.submit(name="warm", **cached, schedules=[{"every_seconds": 15}])
    cold = [_program(stack) for _ in range(4)]
    with_input = {
        **_program(stack),
        "inputs": [{"path": "data", "artifact": stack.upload(secrets.token_bytes(50_000))}],
    }
    leaving = [stack.submit(name=f"leaves-{n}", runtime="bash", script=f"{LEAVES_A_FILE} # {n}") for n in range(3)]
    wait_for(
        lambda: all(_statuses(stack, job) == ["running"] for job in leaving), "those that leave files run", every=0.1
    )
    script = f"echo ran # {secrets.token_hex(8)}"
    refused = {"name": "refused", "runtime": "bash", "script": script}

    with _away(stack) as stop:
        began = datetime.now(UTC)
        waiting = [stack.submit(name=f"cold-{n}", **program) for n, program in enumerate(cold)]
        waiting.append(stack.submit(name="input", **with_input))
        soon = began + timedelta(seconds=20)
        waiting.append(stack.submit(name="soon", **cold[0], schedules=[{"at": soon.isoformat()}]))
        _is_refused(stack, refused)
        stop()
        _is_refused(stack, refused)
        assert [_statuses(stack, job) for job in leaving] == [["running"]] * len(leaving), "their outputs wait"

    for job in (*waiting, *leaving):
        execution = stack.wait_for_end(job, seconds=BACK_SECONDS)
        assert _ending(stack, execution) == ("succeeded", "exit", 1, ["exit"], "ran\n"), job["name"]
    for job in leaving:
        (file,) = stack.api.get(f"/executions/{stack.executions(job)[0]['id']}/outputs").json()["results"]
        assert (file["name"], file["size"]) == ("file", 5)
        assert httpx.get(file["url"]).raise_for_status().content == b"left\n"
    assert _ending(stack, stack.wait_for_end(stack.submit(**refused)))[0] == "succeeded"
    _check_that_what_was_cached_ran_on(stack, warm, began)


@contextmanager
def _away(stack: Stack) -> Iterator[Callable[[], None]]:
    """Freeze the store; yield a function that later stops it; return when it is back, two minutes later."""
    supervisor, began = stack.supervisor, time.monotonic()
    stack.process(STORE).suspend()

    def stop() -> None:
        _wait_until(began + FROZEN_SECONDS)
        # SIGKILL: a frozen process handles no other signal.
        supervisor.stop([STORE], seconds=30)

    try:
        yield stop
        _wait_until(began + AWAY_SECONDS)
    finally:
        supervisor.stop([STORE], seconds=30)
        supervisor.start([STORE])
    supervisor.wait_until_running([STORE])


def _wait_until(moment: float) -> None:
    wait_for(lambda: time.monotonic() > moment, "it is time", seconds=AWAY_SECONDS + 10, every=0.2)


def _program(stack: Stack) -> dict[str, Any]:
    """Return a program that no worker has cached."""
    return {"runtime": "bash", "artifact": stack.upload(f"echo ran # {secrets.token_hex(8)}\n".encode())}


def _is_refused(stack: Stack, body: dict[str, Any]) -> None:
    """Assert 503 within the client's timeout, with advice, and that nothing is stored."""
    answer = stack.api.post("/jobs", json=body, timeout=REFUSED_WITHIN_SECONDS)
    assert (answer.status_code, answer.headers["Content-Type"]) == (503, "application/problem+json"), answer.text
    assert int(answer.headers["Retry-After"]) > 0
    assert "object store" in answer.json()["detail"]
    jobs = stack.api.get("/jobs?limit=500").raise_for_status().json()["results"]
    assert body["name"] not in {job["name"] for job in jobs}


def _statuses(stack: Stack, job: dict[str, Any]) -> list[str]:
    return [execution["status"] for execution in stack.executions(job)]


def _ending(stack: Stack, execution: dict[str, Any]) -> tuple[object, ...]:
    """Return the outcome, the tries used, the reasons of its attempts, and its logs."""
    attempts = stack.api.get(f"/executions/{execution['id']}/attempts").raise_for_status().json()["results"]
    ends = [attempt["reason"] for attempt in attempts]
    return execution["status"], execution["reason"], execution["tries_used"], ends, stack.log(execution)


def _check_that_what_was_cached_ran_on(stack: Stack, job: dict[str, Any], began: datetime) -> None:
    back = began + timedelta(seconds=AWAY_SECONDS - 5)
    meanwhile = [e for e in stack.executions(job) if began < datetime.fromisoformat(e["scheduled_for"]) < back]
    assert len(meanwhile) >= 6
    assert {execution["status"] for execution in meanwhile} == {"succeeded"}
    assert all(datetime.fromisoformat(execution["ended_at"]) < back for execution in meanwhile)
