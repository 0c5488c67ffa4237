"""Lists: pages, filters, visibility and constant query counts."""

from __future__ import annotations

from datetime import datetime
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from jobs.domain.states import State
from jobs.domain.worker_protocol import WorkerUsage
from jobs.fleet.leases import renew_lease
from jobs.models import Artifact, Calendar, Dependency, Execution, Queue, Secret
from tests.integration.api.conftest import API
from tests.support.factories import make_execution, make_job, make_schedule, make_worker


def names(client: APIClient, query: str = "") -> list[str]:
    return [row["name"] for row in client.get(f"{API}/jobs{query}").json()["results"]]


def test_pages_are_newest_first_and_complete(client: APIClient, owner: User) -> None:
    for number in range(5):
        make_job(owner=owner, name=f"job-{number}")
    seen: list[str] = []
    address: str | None = f"{API}/jobs?limit=2&search=job"
    while address:
        page = client.get(address).json()
        assert len(page["results"]) <= 2
        seen += [row["name"] for row in page["results"]]
        address = page["next"]
        assert address is None or address.startswith(f"{API}/jobs?")

    assert seen == [f"job-{number}" for number in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=x", "limit"),
        ("limit=٣", "limit"),
        ("cursor=nonsense", "cursor"),
        ("cursor=é", "cursor"),
        ("cursor=", "cursor"),
        ("status=asleep", "status"),
        ("priority=11", "priority"),
        ("stauts=running", "stauts"),
    ],
)
def test_invalid_query_names_its_parameter(client: APIClient, query: str, field: str) -> None:
    response = client.get(f"{API}/jobs?{query}")

    assert response.status_code == 400
    assert response.json()["errors"][0]["field"] == field


def test_job_filters(client: APIClient, owner: User) -> None:
    make_schedule(job=make_job(owner=owner, name="Scheduled", priority=9))
    make_execution(job=make_job(owner=owner, name="waiting", queue=Queue.objects.create(name="slow")))
    make_job(owner=owner, name="stopped", state="cancelled")

    assert names(client, "?status=scheduled") == ["Scheduled"]
    assert names(client, "?status=waiting") == ["waiting"]
    assert names(client, "?status=cancelled") == ["stopped"]
    assert names(client, "?queue=slow") == ["waiting"]
    assert names(client, "?priority=9") == ["Scheduled"]
    assert names(client, "?search=SCHED") == ["Scheduled"]
    assert names(client, "?search=%25") == []


def test_execution_filters(client: APIClient, owner: User) -> None:
    job = make_job(owner=owner)
    ready, missed = make_execution(job=job), make_execution(job=job, state=State.MISSED)
    other = make_execution(job=make_job(owner=owner))

    def found(query: str) -> set[str]:
        return {row["id"] for row in client.get(f"{API}/executions?{query}").json()["results"]}

    assert found(f"job_id={job.id}") == {str(ready.id), str(missed.id)}
    assert found("status=ready") == {str(ready.id), str(other.id)}
    assert found(f"worker_id={uuid4()}") == set()


def test_objects_of_others_are_not_found(client: APIClient, stranger: APIClient, staff: APIClient, owner: User) -> None:
    job = make_job(owner=owner)
    execution = make_execution(job=job)
    artifact = Artifact.objects.get(owner=owner)
    reads = [
        f"jobs/{job.id}",
        f"jobs/{job.id}/next",
        f"executions/{execution.id}",
        *(f"executions/{execution.id}/{part}" for part in ("attempts", "logs", "outputs", "events")),
        f"artifacts/{artifact.id}",
    ]
    for address in reads:
        assert client.get(f"{API}/{address}").status_code == 200, address
        assert stranger.get(f"{API}/{address}").status_code == 404, address
        assert staff.get(f"{API}/{address}").status_code == 200, address
    assert stranger.put(f"{API}/jobs/{job.id}/cancel").status_code == 404
    assert stranger.post(f"{API}/jobs/{job.id}/execute").status_code == 404
    assert stranger.put(f"{API}/executions/{execution.id}/cancel").status_code == 404
    assert stranger.post(f"{API}/artifacts/{artifact.id}/complete").status_code == 404
    assert stranger.get(f"{API}/jobs").json()["results"] == []
    assert stranger.get(f"{API}/executions?job_id={job.id}").json()["results"] == []
    execution.refresh_from_db()
    job.refresh_from_db()
    assert (execution.state, job.state) == (State.READY, "active")


def test_workers_and_queues_are_visible_to_all(stranger: APIClient) -> None:
    worker = make_worker(name="w1", details={"cgroups": "v2", "network": False})

    assert [w["name"] for w in stranger.get(f"{API}/workers?status=online").json()["results"]] == ["w1"]
    assert stranger.get(f"{API}/workers?status=lost").json()["results"] == []
    data = stranger.get(f"{API}/workers/{worker.worker_id}").json()
    assert (data["status"], data["details"]) == ("online", {"cgroups": "v2", "network": False})
    assert data["usage"] is None
    renew_lease(worker, [], WorkerUsage(runs=1, taken=2, load=0.5, memory_available_mb=3))
    usage = stranger.get(f"{API}/workers/{worker.worker_id}").json()["usage"]
    assert (usage["runs"], usage["taken"], usage["load"], usage["memory_available_mb"]) == (1, 2, 0.5, 3)
    assert datetime.fromisoformat(usage["at"]).tzinfo is not None
    assert [q["name"] for q in stranger.get(f"{API}/queues").json()["results"]] == ["default"]


def test_query_count_does_not_grow_with_page(client: APIClient, owner: User) -> None:
    def count(address: str, limit: int) -> int:
        with CaptureQueriesContext(connection) as queries:
            response = client.get(f"{API}/{address}{'&' if '?' in address else '?'}limit={limit}")
        assert len(response.json()["results"]) == limit, address
        # The authentication may or may not be cached.
        asking = ("jobs_apitoken", "jobs_ownerquota")
        return sum(not any(table in query["sql"] for table in asking) for query in queries.captured_queries)

    for number in range(100):
        upstream = make_job(owner=owner)
        make_schedule(job=upstream)
        make_schedule(job=upstream)
        execution = make_execution(job=upstream)
        Dependency.objects.create(job=make_job(owner=owner), upstream=upstream)
        Execution.objects.filter(id=make_execution(job=upstream).id).update(
            state="failed", reason="exit", ended_at=execution.fired_at, dead_letter="open"
        )
        Artifact.objects.create(owner=owner, sha256=f"{number + 1:064x}", size=1, verified_at=execution.fired_at)
        Calendar.objects.create(owner=owner, name=f"calendar {number}")
        Secret.objects.create(owner=owner, name=f"KEY_{number}", sealed=b"x")
        make_worker()
        Queue.objects.create(name=f"queue-{number}")
    for address in (
        *("jobs", "jobs?status=waiting", "jobs?ordering=name", "jobs?ordering=next_fire", "jobs?search=job"),
        *("executions", "executions?status=ready", "executions?status=failed", "executions?ordering=ended_at"),
        *("dead-letters", "artifacts", "calendars", "secrets", "workers", "queues"),
    ):
        assert count(address, 100) <= count(address, 1) <= 12, address
