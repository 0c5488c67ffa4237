"""A backlog for a scarce resource, on real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import started_stack
from tests.support.stack import Stack
from tests.support.waiting import wait_for

# More than one batch of placement.
CROWD = 2100
SECONDS = 20


@pytest.fixture
def with_a_gpu() -> Iterator[Stack]:
    with started_stack({"PUNCTUAL_WORKER_RESOURCES": "gpu=1"}) as running:
        yield running


def test_many_executions_that_wait_for_a_busy_gpu_delay_no_others(with_a_gpu: Stack) -> None:
    stack = with_a_gpu
    gpu = {"resources": {"gpu": 1}}
    holder = stack.submit(name="holder", runtime="bash", script="sleep 600", requirements=gpu)
    wait_for(lambda: [e for e in stack.executions(holder) if e["status"] == "running"], "somebody has the gpu")
    jobs = [{"name": f"gpu-{n}", "runtime": "bash", "script": "true", "requirements": gpu} for n in range(CROWD)]
    for first in range(0, CROWD, 700):
        answer = stack.api.post("/jobs/bulk", json={"jobs": jobs[first : first + 700]}, timeout=120)
        assert answer.status_code == 201, answer.text
    assert stack.api.post("/queues", json={"name": "elsewhere"}).status_code == 201
    for queue in ("default", "elsewhere"):
        other = stack.submit(name=f"other-{queue}", runtime="bash", script="true", queue=queue, priority=0)
        assert stack.wait_for_end(other, seconds=SECONDS)["status"] == "succeeded"
    waiting = stack.api.get("/executions", params={"status": "ready", "limit": 1}).json()["results"]
    explained = stack.api.get(f"/executions/{waiting[0]['id']}/explain").json()
    assert "resource.gpu" in {gate["gate"] for gate in explained["gates"] if not gate["open"]}, explained
