"""Lanes: one kind of request never waits for another, and queues are bounded."""

from __future__ import annotations

import asyncio
import time

import pytest
from django.contrib.auth.models import User
from django.db import connection

from jobs.models import ApiToken, Job, Queue, TokenScope, Worker
from scheduler_project.web import lanes
from scheduler_project.web.bridge import Bridge
from scheduler_project.web.lanes import ORDINARY_THREADS, RENEWAL_CONNECTIONS, RESERVED_CONNECTIONS, RESERVED_THREADS
from tests.integration.api.conftest import API, job_body
from tests.integration.web.conftest import CONNECTIONS
from tests.integration.web.exchange import Exchange, bearer_of, post, until
from tests.support.factories import make_execution, make_job, make_user, make_worker, run_on
from tests.support.own_connection import own_connection

pytestmark = pytest.mark.django_db(transaction=True)


def blocked() -> int:
    with own_connection(autocommit=True) as looking:
        found = looking.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()
    assert found is not None
    return int(found[0])


def test_renewal_works_while_ordinary_requests_hold_connections(bridge: Bridge, bearer: dict[str, str]) -> None:
    worker = make_worker()
    token = bearer_of(make_user(is_staff=True), TokenScope.WORKER)
    Worker.objects.filter(id=worker.worker_id).update(token=ApiToken.objects.get(scope=TokenScope.WORKER))

    async def test() -> None:
        lists = [Exchange("GET", f"{API}/jobs", bearer) for _ in range(ORDINARY_THREADS)]
        asked = [asyncio.ensure_future(each.run(bridge)) for each in lists]
        await until(
            lambda: blocked() >= CONNECTIONS - RESERVED_CONNECTIONS, "they hold connections, and wait for the table"
        )
        standing = {"incarnation": worker.incarnation, "held": []}
        for _ in range(20):
            renewal = post(f"workers/{worker.worker_id}/heartbeat", token, standing)
            began = time.monotonic()
            await renewal.run(bridge)
            assert (renewal.status, renewal.json["orders"]) == (200, [])
            assert time.monotonic() - began < 3
        locked.rollback()
        await asyncio.gather(*asked)

    with own_connection() as locked:
        locked.execute("LOCK TABLE jobs_job")
        asyncio.run(test())


def test_renewals_and_health_work_while_others_hold_connections(
    bridge: Bridge, bearer: dict[str, str], owner: User
) -> None:
    idle, busy = make_worker(), make_worker()
    execution = run_on(busy, make_execution(job=make_job(owner=owner)))
    token = bearer_of(make_user(is_staff=True), TokenScope.WORKER)
    Worker.objects.update(token=ApiToken.objects.get(scope=TokenScope.WORKER))
    standing = {"incarnation": idle.incarnation, "held": []}
    chunk = {"sequence": 0, "stream": "stdout", "at": "2026-11-01T00:00:00Z", "base64": "eA=="}
    fence = {"worker_id": str(busy.worker_id), "incarnation": busy.incarnation, "attempt": execution.attempt}

    async def test() -> None:
        lists = [Exchange("GET", f"{API}/jobs", bearer) for _ in range(ORDINARY_THREADS)]
        reports = [
            post(f"executions/{execution.execution_id}/logs", token, {**fence, "chunks": [chunk]})
            for _ in range(3 * RESERVED_THREADS)
        ]
        asked = [asyncio.ensure_future(each.run(bridge)) for each in (*lists, *reports)]
        await until(
            lambda: blocked() >= CONNECTIONS - RENEWAL_CONNECTIONS, "they hold connections, and wait for the table"
        )
        for _ in range(20):
            renewal = post(f"workers/{idle.worker_id}/heartbeat", token, standing)
            began = time.monotonic()
            await renewal.run(bridge)
            assert renewal.status == 200, renewal.body
            health = Exchange("GET", "/healthz")
            await health.run(bridge)
            assert health.status == 200
            assert time.monotonic() - began < 3
        locked.rollback()
        await asyncio.gather(*asked)
        assert {report.status for report in reports} <= {204, 503}

    # The test's own connection is one of the pool.
    connection.close()
    with own_connection() as locked:
        locked.execute("LOCK TABLE jobs_job")
        asyncio.run(test())


def test_queued_view_of_disconnected_client_does_not_run(
    bridge: Bridge, bearer: dict[str, str], bucket: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Queue.objects.get_or_create(name="default")

    async def test() -> None:
        lists = [Exchange("GET", f"{API}/jobs", bearer) for _ in range(ORDINARY_THREADS)]
        asked = [asyncio.ensure_future(each.run(bridge)) for each in lists]
        await until(lambda: blocked() > 0, "they wait for the table")
        left, stays = post("jobs", bearer, job_body(name="left")), post("jobs", bearer, job_body(name="stays"))
        leaving, staying = asyncio.ensure_future(left.run(bridge)), asyncio.ensure_future(stays.run(bridge))
        left.hang_up()
        await leaving
        assert left.sent == []
        monkeypatch.setattr(lanes, "MAX_PENDING_VIEWS", ORDINARY_THREADS + 1)
        refused = post("jobs", bearer, job_body(name="refused"))
        await refused.run(bridge)
        assert (refused.status, refused.headers["retry-after"]) == (503, "2")
        assert not staying.done()
        locked.rollback()
        await asyncio.gather(*asked, staying)
        assert stays.status == 201, stays.body
        again = post("jobs", bearer, job_body(name="again"))
        await again.run(bridge)
        assert again.status == 201, "there is space again"

    with own_connection() as locked:
        locked.execute("LOCK TABLE jobs_job")
        asyncio.run(test())
    assert set(Job.objects.values_list("name", flat=True)) == {"stays", "again"}
