"""Lanes of requests, and cancellation while a thread works."""

from __future__ import annotations

import asyncio
import threading

import pytest

from scheduler_project.web.lanes import Lane, Lanes

ID = "01a1ed07-e545-75d6-b937-e604868cedf2"


@pytest.mark.parametrize(
    ("method", "path", "lane"),
    [
        ("GET", "/healthz", "_health"),
        ("GET", "/readyz", "_readiness"),
        ("POST", f"/api/v1/workers/{ID}/claim", "_claims"),
        ("POST", f"/api/v1/workers/{ID}/heartbeat", "_renewals"),
        ("GET", "/api/v1/workers/terms", "_renewals"),
        ("POST", "/api/v1/workers/register", "_reports"),
        ("POST", f"/api/v1/workers/{ID}/leave", "_reports"),
        ("POST", f"/api/v1/executions/{ID}/start", "_reports"),
        ("POST", f"/api/v1/executions/{ID}/complete", "_reports"),
        ("POST", f"/api/v1/executions/{ID}/logs", "_reports"),
        ("POST", f"/api/v1/executions/{ID}/outputs", "_reports"),
        ("GET", f"/api/v1/executions/{ID}/logs", "_ordinary"),
        ("GET", f"/api/v1/workers/{ID}", "_ordinary"),
        ("POST", "/api/v1/login", "_ordinary"),
        ("GET", f"/healthz/../api/v1/workers/{ID}/claim", "_ordinary"),
    ],
)
def test_workers_and_probes_have_own_lanes(method: str, path: str, lane: str) -> None:
    lanes = Lanes(connections=8)
    assert lanes.route(method, path) is getattr(lanes, lane)


def test_cancelled_run_waits_for_its_thread() -> None:
    begun, go_on, over = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(10)
        over.set()

    async def test() -> None:
        working = asyncio.ensure_future(Lane("test", 1).run(work))
        await asyncio.to_thread(begun.wait, 10)
        working.cancel()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await working
        assert over.is_set()

    asyncio.run(test())
