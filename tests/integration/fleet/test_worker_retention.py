"""Retirement of workers: they leave lists, passes of beat and Redis; history still names them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from django.conf import settings
from django.db import connection
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.db import sql
from jobs.domain.messages import worker_queue
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import RunReport
from jobs.execution.attempts import finish_attempt
from jobs.fleet import worker_retention
from jobs.fleet.worker_retention import retire_workers
from jobs.models import Attempt, Worker
from jobs.telemetry.metrics import read_metrics
from scheduler_project.localstack.ports import iter_free_ports
from tests.support.factories import make_execution, make_user, make_worker, place_on, run_on
from tests.support.own_connection import own_connection

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("engines")]

WEEK = timedelta(days=7)


def gone(name: str, *, status: str = "offline", ago: timedelta = WEEK + timedelta(hours=1)) -> UUID:
    worker_id = make_worker(name=name).worker_id
    Worker.objects.filter(id=worker_id).update(status=status, lease_until=datetime.now(UTC) - ago)
    return worker_id


def statuses() -> dict[str, str]:
    return dict(Worker.objects.values_list("name", "status"))


def keys_of(worker_id: UUID) -> int:
    name = worker_queue(worker_id)
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        return int(client.exists(name, f"_kombu.binding.{name}"))


def leave_messages(worker_id: UUID) -> None:
    name = worker_queue(worker_id)
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        client.rpush(name, "message")
        client.sadd(f"_kombu.binding.{name}", name)
    assert keys_of(worker_id) == 2


def test_worker_gone_for_long_is_retired_and_its_queue_deleted() -> None:
    old, recent = gone("old"), gone("recent", ago=timedelta(days=6))
    gone("lost", status="lost")
    make_worker(name="living")
    for worker_id in (old, recent):
        leave_messages(worker_id)
    assert retire_workers(retention=WEEK) == 2
    assert statuses() == {"old": "retired", "lost": "retired", "recent": "offline", "living": "online"}
    assert (keys_of(old), keys_of(recent)) == (0, 2)
    assert retire_workers(retention=WEEK) == 0


def test_worker_that_holds_an_execution_is_not_retired() -> None:
    worker = make_worker(name="holding")
    place_on(worker, make_execution())
    Worker.objects.update(status="lost", lease_until=datetime.now(UTC) - WEEK * 2)
    assert retire_workers(retention=WEEK) == 0


def test_retired_worker_is_unlisted_and_still_named_by_its_attempts() -> None:
    worker, execution = make_worker(name="pod-1"), make_execution()
    finish_attempt(run_on(worker, execution), RunReport(Reason.EXIT, exit_code=0))
    Worker.objects.update(status="offline", lease_until=datetime.now(UTC) - WEEK * 2)
    retire_workers(retention=WEEK)
    client = APIClient()
    client.force_authenticate(make_user())
    assert client.get("/api/v1/workers").json()["results"] == []
    assert [w["name"] for w in client.get("/api/v1/workers?status=retired").json()["results"]] == ["pod-1"]
    assert client.get(f"/api/v1/workers/{worker.worker_id}").json()["status"] == "retired"
    assert Attempt.objects.get().worker.name == "pod-1"
    assert read_metrics().workers == {}


def test_retired_worker_that_comes_back_is_online() -> None:
    worker_id = gone("back")
    retire_workers(retention=WEEK)
    again = make_worker(name="back")
    assert (again.worker_id, again.incarnation, statuses()) == (worker_id, 2, {"back": "online"})


@pytest.mark.django_db(transaction=True)
def test_worker_cannot_register_while_it_is_retired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker_id = gone("back")
    free: list[object] = []
    delete = worker_retention._delete_queues

    def delete_and_look(ids: Sequence[UUID]) -> bool:
        with own_connection() as other:
            lock_row = "SELECT id FROM jobs_worker WHERE id = %s FOR NO KEY UPDATE SKIP LOCKED"
            free.extend(other.execute(lock_row, [worker_id]).fetchall())
        return delete(ids)

    monkeypatch.setattr(worker_retention, "_delete_queues", delete_and_look)
    assert retire_workers(retention=WEEK) == 1
    assert free == [], "a worker that registers now would lose its new queue"


def test_without_redis_no_worker_is_retired(settings: Settings) -> None:
    gone("old")
    url = settings.PUNCTUAL_REDIS_URL
    settings.PUNCTUAL_REDIS_URL = f"redis://127.0.0.1:{next(iter_free_ports())}/0"
    assert retire_workers(retention=WEEK) == 0
    settings.PUNCTUAL_REDIS_URL = url
    assert retire_workers(retention=WEEK) == 1


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("mark_lost_workers", {"gap_seconds": 10.0, "lease_seconds": 30.0, "max_lease_seconds": 600.0, "limit": 1000}),
        ("read_free_capacity", {"pool": "default", "full_ones": False}),
        ("mark_suspect_workers", {"unclaimed_seconds": 30.0}),
    ],
)
def test_no_pass_reads_workers_that_are_gone(name: str, parameters: dict[str, Any]) -> None:
    shown = explained_among_thousands_gone(name, parameters)
    assert "worker_living" in shown
    assert "Seq Scan on jobs_worker" not in shown


def test_reclaiming_reads_only_workers_that_hold_executions() -> None:
    place_on(make_worker(), make_execution())
    with connection.cursor() as cursor:
        # The planner overestimates how many workers hold something, and would rather read the small table at once.
        cursor.execute("SET LOCAL random_page_cost = 10")
    shown = explained_among_thousands_gone("find_orphaned_workers", {"limit": 1000})
    read = [line for line in shown.splitlines() if " on jobs_worker" in line]
    assert len(read) == 1
    assert "jobs_worker_pkey" in read[0], "one lookup for each worker with placed executions"
    assert "loops=1)" in read[0]


def explained_among_thousands_gone(name: str, parameters: dict[str, Any]) -> str:
    make_worker()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_worker SELECT (jsonb_populate_record(w, jsonb_build_object("
            "'id', uuidv7(), 'name', n, 'status', 'offline'))).*"
            " FROM jobs_worker w, generate_series(1, 2000) n WHERE w.id = (SELECT id FROM jobs_worker LIMIT 1)"
        )
        cursor.execute("ANALYZE jobs_worker")
        cursor.execute(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {sql.statement(name)}", parameters)
        return "\n".join(line for (line,) in cursor.fetchall())
