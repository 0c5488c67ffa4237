"""Registration, leases and claims of REST workers."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.db.wakeups import wake_worker
from jobs.definitions import lifecycle
from jobs.dispatch.publishing import probe_suspects
from jobs.domain import limits
from jobs.domain.errors import WorkerLeaseLost
from jobs.domain.messages import Transport
from jobs.domain.worker_protocol import PROTOCOL_VERSION
from jobs.fleet import remote_claims
from jobs.fleet.leases import deregister_worker
from jobs.models import ApiToken, Worker
from scheduler_project.localstack.engines.standalone import Engines
from tests.integration.api.conftest import API, client_of
from tests.support.factories import make_execution, make_user, make_worker
from tests.support.rest_workers import LEASE_LOST, NAME_TAKEN, RestWorker, join, offer, pairs, worker_client
from tests.support.waiting import wait_for

WORKERS_ONLY = {
    ("get", "/workers/terms"),
    ("post", "/workers/register"),
    ("post", "/workers/{worker_id}/heartbeat"),
    ("post", "/workers/{worker_id}/claim"),
    ("post", "/workers/{worker_id}/leave"),
    ("post", "/executions/{execution_id}/start"),
    ("post", "/executions/{execution_id}/logs"),
    ("post", "/executions/{execution_id}/outputs"),
    ("post", "/executions/{execution_id}/complete"),
}
BOTH = {("post", "/workers/{worker_id}/drain"), ("get", "/tokens/self"), ("delete", "/tokens/self")}


@pytest.fixture
def operations(client: APIClient) -> list[tuple[str, str]]:
    """Every route of the schema."""
    paths = client.get(f"{API}/schema?format=json").json()["paths"]
    return [(method, path.removeprefix(API)) for path, methods in paths.items() for method in methods]


def call(client: APIClient, method: str, path: str) -> int:
    address = API + re.sub(r"{\w+}", str(uuid4()), path)
    body = None if method == "get" else "{}"
    response = client.generic(method.upper(), address, body or "", content_type="application/json")
    return int(response.status_code)


def test_worker_token_cannot_use_user_routes(operations: list[tuple[str, str]]) -> None:
    worker, _ = worker_client()
    others = [each for each in operations if each not in WORKERS_ONLY | BOTH | {("post", "/login")}]
    assert len(others) > 30
    assert {each: status for each in others if (status := call(worker, *each)) != 403} == {}


def test_other_tokens_cannot_use_worker_routes(operations: list[tuple[str, str]], staff: APIClient) -> None:
    assert set(operations) >= WORKERS_ONLY | BOTH
    for client in (staff, client_of(make_user())):
        assert {each for each in WORKERS_ONLY if call(client, *each) != 403} == set()
    assert {each for each in WORKERS_ONLY | BOTH if call(APIClient(), *each) != 401} == set()


def test_terms_list_timings(db: None, settings: Settings) -> None:
    settings.PUNCTUAL_LEASE_SECONDS = 12
    terms = worker_client()[0].get(f"{API}/workers/terms").json()
    assert (terms["protocol"], terms["lease_seconds"]) == (PROTOCOL_VERSION, 12)


def test_reregistration_starts_new_incarnation(db: None) -> None:
    client, token = worker_client()
    first = join(client, instance=str(uuid4()))
    row = Worker.objects.get(id=first.id)
    assert (row.transport, row.token, row.status) == (Transport.REST, token, "online")
    again = join(client, instance=str(row.instance), slots=7)
    assert (again.id, again.registration.incarnation) == (first.id, 2)
    assert Worker.objects.get(id=first.id).slots == 7


def test_worker_name_belongs_to_its_token(db: None) -> None:
    client, token = worker_client()
    gone = join(client)
    other, _ = worker_client()

    def take() -> tuple[int, str | None]:
        response = other.post(f"{API}/workers/register", offer(), format="json")
        return response.status_code, response.json().get("type")

    assert take() == (409, NAME_TAKEN)  # alive
    deregister_worker(gone.registration)
    assert take() == (409, NAME_TAKEN)  # gone, but the name is still taken
    token.delete()
    assert take() == (201, None)


def test_pool_token_joins_no_other_pool(db: None) -> None:
    client, token = worker_client()
    token.pool = "far"
    token.save()
    response = client.post(f"{API}/workers/register", offer(), format="json")
    assert (response.status_code, Worker.objects.count()) == (403, 0)
    assert "the pool far only" in response.json()["detail"]
    assert Worker.objects.get(id=join(client, pool="far").id).pool == "far"


def test_odd_worker_details_do_not_break_list(staff: APIClient) -> None:
    join(details={"runtimes": []})
    admin = Client()
    admin.force_login(make_user(is_staff=True, is_superuser=True))
    assert admin.get("/admin/jobs/worker/").status_code == 200


def test_too_long_list_is_rejected_unread(db: None) -> None:
    answer = join().post("heartbeat", held=[{}] * 20_000)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == ["held"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["expires_at", "revoked_at"])
def test_revoked_worker_token_gets_no_work(bucket: None, how: str) -> None:
    worker = join()
    worker.place(make_execution())
    ApiToken.objects.update(**{how: "2001-01-01T00:00:00Z"})
    with pytest.raises(WorkerLeaseLost):
        remote_claims.claim_work(worker.registration, [])


def test_name_of_celery_worker_is_rejected(db: None) -> None:
    celery = make_worker(name="remote", instance=uuid4())
    deregister_worker(celery)
    response = worker_client()[0].post(f"{API}/workers/register", offer(), format="json")
    assert (response.status_code, response.json()["type"]) == (409, NAME_TAKEN)


def test_restart_with_other_token_is_recognised_by_instance(db: None) -> None:
    instance = str(uuid4())
    first, again = join(instance=instance), join(instance=instance)
    assert again.id == first.id
    assert first.post("heartbeat", held=[]).status_code == 404


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", 7),
        ("name", "x" * 121),
        ("name", "nul\0"),
        ("name", "lone \ud800"),
        ("instance", "x"),
        ("pool", "a b"),
        ("slots", 0),
        ("slots", 1.5),
        ("slots", True),
        ("cpu", "much"),
        ("cpu", 1e300),
        ("memory_mb", 2**31),
        ("capabilities", ["x"] * 65),
        ("capabilities", "bash"),
        ("details", []),
        ("details", {"nul": "\0"}),
        ("details", {"much": "x" * 70_000}),
        ("resources", {"cpu": 1}),
        ("resources", {"gpu": -1}),
        ("resources", {f"r{n}": 1 for n in range(17)}),
        ("unknown", 1),
    ],
)
def test_registration_is_validated(db: None, field: str, value: object) -> None:
    body = json.dumps(offer(**{field: value}))
    response = worker_client()[0].post(f"{API}/workers/register", body, content_type="application/json")
    assert response.status_code == 400, response.content
    assert response.json()["errors"][0]["field"].partition(".")[0] == field
    assert not Worker.objects.exists()


def test_heartbeat_renews_lease_and_returns_orders(db: None) -> None:
    worker = join()
    execution = worker.place(make_execution())
    Worker.objects.filter(id=worker.id).update(lease_until=Worker.objects.get(id=worker.id).registered_at)
    assert worker.post("heartbeat", held=[]).json()["type"] == LEASE_LOST

    worker = join(worker.client, instance=str(Worker.objects.get(id=worker.id).instance))
    before = Worker.objects.get(id=worker.id).lease_until
    answer = worker.post("heartbeat", held=pairs(execution))
    assert answer.json() == {"orders": [{**pairs(execution)[0], "cancelled": False}], "lease_seconds": 30.0}
    assert Worker.objects.get(id=worker.id).lease_until > before
    assert worker.post("heartbeat", held=[], incarnation=1).json()["type"] == LEASE_LOST


def test_suspect_rest_worker_recovers_by_claiming(db: None) -> None:
    worker = join()
    Worker.objects.filter(id=worker.id).update(status="suspect")
    assert probe_suspects(lambda batch: None, lambda worker_id: True) == 0, "it reads no queue"
    usage = {"runs": 0, "taken": 0, "load": 0.5, "memory_available_mb": 64}
    assert worker.post("heartbeat", held=[], usage=usage).status_code == 200
    assert Worker.objects.get(id=worker.id).status == "suspect"
    assert worker.post("heartbeat", held=[], usage=usage | {"taken": 1}).status_code == 200
    data = Worker.objects.get(id=worker.id)
    assert (data.status, data.usage and data.usage["load"]) == ("online", 0.5)


@pytest.mark.parametrize("wrong", [{"load": "much"}, {"runs": -1}, {"taken": 2**63}, {"more": 1}])
def test_usage_is_validated(db: None, wrong: dict[str, Any]) -> None:
    usage = {"runs": 0, "taken": 0, "load": 0.5, "memory_available_mb": 64} | wrong
    assert join().post("heartbeat", held=[], usage=usage).status_code == 400


@pytest.mark.parametrize("verb", ["heartbeat", "claim", "drain", "leave"])
def test_worker_of_other_token_is_not_found(db: None, verb: str) -> None:
    worker = join()
    worker.client = worker_client()[0]
    body: dict[str, Any] = {"held": []} if verb in {"heartbeat", "claim"} else {}
    assert worker.post(verb, **body).status_code == 404
    assert Worker.objects.get(id=worker.id).status == "online"


@pytest.mark.parametrize(
    "body",
    [
        {"held": None},
        {"held": [{"execution_id": "x", "attempt": 1}]},
        {"held": [{"execution_id": str(uuid4()), "attempt": 0}]},
        {"held": [{"execution_id": str(uuid4()), "attempt": 1, "more": 1}]},
        {"held": [], "incarnation": "1"},
        {"held": [], "incarnation": 2**63},
        {"held": [], "wait_seconds": 21},
        {"held": [], "wait_seconds": -1},
    ],
)
def test_claim_is_validated(db: None, body: dict[str, Any]) -> None:
    assert join().post("claim", **body).status_code == 400


@pytest.mark.django_db(transaction=True)
def test_claim_returns_run_once(bucket: None, engines: Engines) -> None:
    worker = join()
    execution = worker.place(make_execution())
    (claimed,) = worker.claim()["executions"]
    execution.refresh_from_db()
    assert execution.state == "claimed"
    assert (claimed["execution_id"], claimed["attempt"], claimed["runtime"]) == (str(execution.id), 1, "bash")
    assert (claimed["args"], claimed["env"], claimed["program"]["size"]) == ([], {}, 1)
    assert claimed["program"]["sha256"] in claimed["program"]["url"]
    assert worker.claim(execution) == {"executions": [], "orders": []}
    # The response was lost: the worker does not list the attempt.
    assert [each["execution_id"] for each in worker.claim()["executions"]] == [str(execution.id)]
    worker.report(execution, "start")
    assert worker.claim()["executions"] == []


@pytest.mark.django_db(transaction=True)
def test_claim_returns_no_work_of_other_workers(bucket: None) -> None:
    worker, other = join(), join(name="other")
    other.place(make_execution())
    assert worker.claim()["executions"] == []
    cancelled = worker.place(make_execution())
    lifecycle.cancel_execution(cancelled.id, by="somebody")
    assert worker.claim()["executions"] == []


@pytest.mark.django_db(transaction=True)
def test_worker_without_lease_gets_no_work(bucket: None) -> None:
    worker = join()
    execution = worker.place(make_execution())
    deregister_worker(worker.registration)
    response = worker.post("claim", held=[], wait_seconds=20)
    assert (response.status_code, response.json()["type"]) == (409, LEASE_LOST)
    execution.refresh_from_db()
    assert execution.state == "ready"


@pytest.fixture
def waiting() -> Iterator[Callable[..., tuple[list[dict[str, Any]], threading.Thread]]]:
    """Start a claim in a thread; it is waiting when this returns."""
    threads = []

    def wait(worker: RestWorker, *held: Any) -> tuple[list[dict[str, Any]], threading.Thread]:
        answers: list[dict[str, Any]] = []

        def ask() -> None:
            try:
                answers.append(worker.claim(*held, wait_seconds=20))
            finally:
                connection.close()

        free = remote_claims.claim_waiter_pool().free
        thread = threading.Thread(target=ask)
        threads.append(thread)
        thread.start()
        wait_for(lambda: remote_claims.claim_waiter_pool().free < free, "the claim waits")
        return answers, thread

    yield wait
    for thread in threads:
        thread.join(timeout=30)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("redis_answers", [True, False])
def test_claim_waits_for_placement(
    bucket: None, waiting: Callable[..., Any], settings: Settings, monkeypatch: pytest.MonkeyPatch, redis_answers: bool
) -> None:
    if redis_answers:
        # Only a wake-up can end the wait in time.
        monkeypatch.setattr(limits, "CLAIM_POLL_SECONDS", 20)
    else:
        settings.PUNCTUAL_REDIS_URL = "redis://127.0.0.1:1/0"
    worker = join()
    answers, thread = waiting(worker)
    execution = worker.place(make_execution())
    wake_worker(worker.id)
    began = time.monotonic()
    thread.join(timeout=15)
    assert time.monotonic() - began < 10
    assert [each["execution_id"] for each in answers[0]["executions"]] == [str(execution.id)]


@pytest.mark.django_db(transaction=True)
def test_cancel_ends_waiting_claim(bucket: None, waiting: Callable[..., Any]) -> None:
    worker = join()
    execution = worker.place(make_execution())
    worker.claim()
    answers, thread = waiting(worker, execution)
    lifecycle.cancel_execution(execution.id, by="somebody")
    thread.join(timeout=15)
    assert answers == [{"executions": [], "orders": [{**pairs(execution)[0], "cancelled": True}]}]


@pytest.mark.django_db(transaction=True)
def test_drain_ends_waiting_claim_and_stops_new_work(bucket: None, waiting: Callable[..., Any]) -> None:
    worker = join()
    answers, thread = waiting(worker)
    assert worker.post("drain").json()["status"] == "draining"
    thread.join(timeout=15)
    assert answers == [{"executions": [], "orders": []}]
    assert Worker.objects.get(id=worker.id).status == "draining"
    execution = make_execution()
    # Placed while the worker began to drain.
    Worker.objects.filter(id=worker.id).update(status="online")
    worker.place(execution)
    Worker.objects.filter(id=worker.id).update(status="draining")
    assert worker.claim()["executions"] == []


@pytest.mark.django_db(transaction=True)
def test_claim_over_waiter_limit_returns_at_once(bucket: None, settings: Settings) -> None:
    settings.PUNCTUAL_WAITING_CLAIMS = 0
    remote_claims.claim_waiter_pool.cache_clear()
    try:
        worker = join()
        began = time.monotonic()
        assert worker.claim(wait_seconds=20) == {"executions": [], "orders": []}
        assert time.monotonic() - began < 10
    finally:
        remote_claims.claim_waiter_pool.cache_clear()


def test_only_staff_drains_workers(staff: APIClient, client: APIClient, db: None) -> None:
    celery, remote = make_worker(), join()
    for worker_id in (celery.worker_id, remote.id):
        address = f"{API}/workers/{worker_id}/drain"
        assert client.post(address, {}, format="json").status_code == 403
        assert staff.post(address, {}, format="json").json()["status"] == "draining"
    assert staff.post(f"{API}/workers/{uuid4()}/drain", {}, format="json").status_code == 404
    assert remote.client.post(f"{API}/workers/{remote.id}/drain", {}, format="json").status_code == 400


def test_leaving_worker_releases_its_attempts(db: None) -> None:
    worker = join()
    execution = worker.place(make_execution())
    assert worker.post("leave").status_code == 204
    execution.refresh_from_db()
    assert (execution.state, Worker.objects.get(id=worker.id).status) == ("ready", "offline")


def test_workers_are_filtered_by_capabilities(client: APIClient) -> None:
    join(capabilities=["bash", "python"])
    join(name="other", capabilities=["bash"])

    def names(query: str) -> set[str]:
        return {row["name"] for row in client.get(f"{API}/workers?{query}").json()["results"]}

    assert names("capabilities=bash") == {"remote", "other"}
    assert names("capabilities=bash,python&status=online") == {"remote"}
    assert names("capabilities=node") == set()
