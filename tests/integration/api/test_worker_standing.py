"""Workers over HTTP: who may join under which name, who lives, and how a question for work is answered."""

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

from jobs import conf
from jobs.errors import WorkerLeaseLost
from jobs.messages import Transport
from jobs.models import ApiToken, Worker
from jobs.protocol import PROTOCOL_VERSION
from jobs.services import claiming, commands
from jobs.services.leases import dismiss_worker
from jobs.services.publishing import probe_suspects
from jobs.wakeups import wake_worker
from scheduler_project.embedded.engines import Engines
from tests.factories import make_execution, make_user, make_worker
from tests.integration.api.conftest import API, client_of
from tests.integration.api.rest_workers import LEASE_LOST, NAME_TAKEN, RestWorker, join, offer, pairs, worker_client
from tests.waiting import wait_for

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
    """Every address that there is, as the schema tells them."""
    paths = client.get(f"{API}/schema?format=json").json()["paths"]
    return [(method, path.removeprefix(API)) for path, methods in paths.items() for method in methods]


def call(client: APIClient, method: str, path: str) -> int:
    address = API + re.sub(r"{\w+}", str(uuid4()), path)
    body = None if method == "get" else "{}"
    response = client.generic(method.upper(), address, body or "", content_type="application/json")
    return int(response.status_code)


def test_a_workers_token_is_good_for_nothing_else(operations: list[tuple[str, str]]) -> None:
    worker, _ = worker_client()
    others = [each for each in operations if each not in WORKERS_ONLY | BOTH | {("post", "/login")}]
    assert len(others) > 30
    assert {each: status for each in others if (status := call(worker, *each)) != 403} == {}


def test_no_other_token_is_good_for_being_a_worker(operations: list[tuple[str, str]], staff: APIClient) -> None:
    assert set(operations) >= WORKERS_ONLY | BOTH
    for client in (staff, client_of(make_user())):
        assert {each for each in WORKERS_ONLY if call(client, *each) != 403} == set()
    assert {each for each in WORKERS_ONLY | BOTH if call(APIClient(), *each) != 401} == set()


def test_terms_say_what_a_worker_must_keep_to(db: None, settings: Settings) -> None:
    settings.PUNCTUAL_LEASE_SECONDS = 12
    terms = worker_client()[0].get(f"{API}/workers/terms").json()
    assert (terms["protocol"], terms["lease_seconds"]) == (PROTOCOL_VERSION, 12)


def test_registering_again_is_a_new_incarnation(db: None) -> None:
    client, token = worker_client()
    first = join(client, instance=str(uuid4()))
    row = Worker.objects.get(id=first.id)
    assert (row.transport, row.token, row.status) == (Transport.REST, token, "online")
    again = join(client, instance=str(row.instance), slots=7)
    assert (again.id, again.registration.incarnation) == (first.id, 2)
    assert Worker.objects.get(id=first.id).slots == 7


def test_the_name_of_a_worker_is_its_tokens(db: None) -> None:
    client, token = worker_client()
    gone = join(client)
    other, _ = worker_client()

    def take() -> tuple[int, str | None]:
        response = other.post(f"{API}/workers/register", offer(), format="json")
        return response.status_code, response.json().get("type")

    assert take() == (409, NAME_TAKEN)  # alive
    dismiss_worker(gone.registration)
    assert take() == (409, NAME_TAKEN)  # gone, and still another's
    token.delete()
    assert take() == (201, None)


def test_a_token_of_a_pool_joins_no_other(db: None) -> None:
    client, token = worker_client()
    token.pool = "far"
    token.save()
    response = client.post(f"{API}/workers/register", offer(), format="json")
    assert (response.status_code, Worker.objects.count()) == (403, 0)
    assert "the pool far only" in response.json()["detail"]
    assert Worker.objects.get(id=join(client, pool="far").id).pool == "far"


def test_words_of_a_worker_that_make_no_sense_do_not_break_the_list(staff: APIClient) -> None:
    join(details={"runtimes": []})
    admin = Client()
    admin.force_login(make_user(is_staff=True, is_superuser=True))
    assert admin.get("/admin/jobs/worker/").status_code == 200


def test_a_list_that_is_too_long_is_refused_unread(db: None) -> None:
    answer = join().say("heartbeat", held=[{}] * 20_000)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == ["held"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["expires_at", "revoked_at"])
def test_a_token_that_is_taken_away_gets_nothing_more(bucket: None, how: str) -> None:
    worker = join()
    worker.place(make_execution())
    ApiToken.objects.update(**{how: "2001-01-01T00:00:00Z"})
    with pytest.raises(WorkerLeaseLost):
        claiming.take_work(worker.registration, [])


def test_the_name_of_a_celery_worker_is_not_for_tokens(db: None) -> None:
    celery = make_worker(name="remote", instance=uuid4())
    dismiss_worker(celery)
    response = worker_client()[0].post(f"{API}/workers/register", offer(), format="json")
    assert (response.status_code, response.json()["type"]) == (409, NAME_TAKEN)


def test_a_restart_with_another_token_is_known_by_its_instance(db: None) -> None:
    instance = str(uuid4())
    first, again = join(instance=instance), join(instance=instance)
    assert again.id == first.id
    assert first.say("heartbeat", held=[]).status_code == 404


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
def test_an_offer_is_checked(db: None, field: str, value: object) -> None:
    body = json.dumps(offer(**{field: value}))
    response = worker_client()[0].post(f"{API}/workers/register", body, content_type="application/json")
    assert response.status_code == 400, response.content
    assert response.json()["errors"][0]["field"].partition(".")[0] == field
    assert not Worker.objects.exists()


def test_a_heartbeat_renews_and_brings_orders(db: None) -> None:
    worker = join()
    execution = worker.place(make_execution())
    Worker.objects.filter(id=worker.id).update(lease_until=Worker.objects.get(id=worker.id).registered_at)
    assert worker.say("heartbeat", held=[]).json()["type"] == LEASE_LOST

    worker = join(worker.client, instance=str(Worker.objects.get(id=worker.id).instance))
    before = Worker.objects.get(id=worker.id).lease_until
    answer = worker.say("heartbeat", held=pairs(execution))
    assert answer.json() == {"orders": [{**pairs(execution)[0], "cancelled": False}]}
    assert Worker.objects.get(id=worker.id).lease_until > before
    assert worker.say("heartbeat", held=[], incarnation=1).json()["type"] == LEASE_LOST


def test_a_suspect_over_http_shows_by_asking_that_it_hears(db: None) -> None:
    worker = join()
    Worker.objects.filter(id=worker.id).update(status="suspect")
    assert probe_suspects(lambda batch: None, lambda worker_id: True) == 0, "it reads no queue"
    usage = {"runs": 0, "taken": 0, "load": 0.5, "memory_available_mb": 64}
    assert worker.say("heartbeat", held=[], usage=usage).status_code == 200
    assert Worker.objects.get(id=worker.id).status == "suspect"
    assert worker.say("heartbeat", held=[], usage=usage | {"taken": 1}).status_code == 200
    shown = Worker.objects.get(id=worker.id)
    assert (shown.status, shown.usage and shown.usage["load"]) == ("online", 0.5)


@pytest.mark.parametrize("wrong", [{"load": "much"}, {"runs": -1}, {"taken": 2**63}, {"more": 1}])
def test_usage_is_checked(db: None, wrong: dict[str, Any]) -> None:
    usage = {"runs": 0, "taken": 0, "load": 0.5, "memory_available_mb": 64} | wrong
    assert join().say("heartbeat", held=[], usage=usage).status_code == 400


@pytest.mark.parametrize("verb", ["heartbeat", "claim", "drain", "leave"])
def test_another_tokens_worker_does_not_exist(db: None, verb: str) -> None:
    worker = join()
    worker.client = worker_client()[0]
    body: dict[str, Any] = {"held": []} if verb in {"heartbeat", "claim"} else {}
    assert worker.say(verb, **body).status_code == 404
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
def test_a_question_is_checked(db: None, body: dict[str, Any]) -> None:
    assert join().say("claim", **body).status_code == 400


@pytest.mark.django_db(transaction=True)
def test_a_claim_gives_what_the_run_needs_once(bucket: None, engines: Engines) -> None:
    worker = join()
    execution = worker.place(make_execution())
    (given,) = worker.ask()["executions"]
    execution.refresh_from_db()
    assert execution.state == "claimed"
    assert (given["execution_id"], given["attempt"], given["runtime"]) == (str(execution.id), 1, "bash")
    assert (given["args"], given["env"], given["program"]["size"]) == ([], {}, 1)
    assert given["program"]["sha256"] in given["program"]["url"]
    assert worker.ask(execution) == {"executions": [], "orders": []}
    # The answer got lost: the worker does not list it.
    assert [each["execution_id"] for each in worker.ask()["executions"]] == [str(execution.id)]
    worker.tell(execution, "start")
    assert worker.ask()["executions"] == []


@pytest.mark.django_db(transaction=True)
def test_a_claim_gives_nothing_of_others(bucket: None) -> None:
    worker, other = join(), join(name="other")
    other.place(make_execution())
    assert worker.ask()["executions"] == []
    cancelled = worker.place(make_execution())
    commands.cancel_execution(cancelled.id, by="somebody")
    assert worker.ask()["executions"] == []


@pytest.mark.django_db(transaction=True)
def test_one_that_lost_its_lease_gets_nothing(bucket: None) -> None:
    worker = join()
    execution = worker.place(make_execution())
    dismiss_worker(worker.registration)
    response = worker.say("claim", held=[], wait_seconds=20)
    assert (response.status_code, response.json()["type"]) == (409, LEASE_LOST)
    execution.refresh_from_db()
    assert execution.state == "ready"


@pytest.fixture
def waiting() -> Iterator[Callable[..., tuple[list[dict[str, Any]], threading.Thread]]]:
    """Asks on a thread of its own; the question waits when this returns."""
    threads = []

    def wait(worker: RestWorker, *held: Any) -> tuple[list[dict[str, Any]], threading.Thread]:
        answers: list[dict[str, Any]] = []

        def ask() -> None:
            try:
                answers.append(worker.ask(*held, wait_seconds=20))
            finally:
                connection.close()

        free = claiming._waiting()._value
        thread = threading.Thread(target=ask)
        threads.append(thread)
        thread.start()
        wait_for(lambda: claiming._waiting()._value < free, "the question waits")
        return answers, thread

    yield wait
    for thread in threads:
        thread.join(timeout=30)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("redis_answers", [True, False])
def test_a_question_waits_for_a_placement(
    bucket: None, waiting: Callable[..., Any], settings: Settings, monkeypatch: pytest.MonkeyPatch, redis_answers: bool
) -> None:
    if redis_answers:
        # So that only a wake-up can end the wait in time.
        monkeypatch.setattr(conf, "CLAIM_LOOK_SECONDS", 20)
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
def test_a_question_is_answered_by_a_cancel(bucket: None, waiting: Callable[..., Any]) -> None:
    worker = join()
    execution = worker.place(make_execution())
    worker.ask()
    answers, thread = waiting(worker, execution)
    commands.cancel_execution(execution.id, by="somebody")
    thread.join(timeout=15)
    assert answers == [{"executions": [], "orders": [{**pairs(execution)[0], "cancelled": True}]}]


@pytest.mark.django_db(transaction=True)
def test_a_drain_answers_the_question_and_nothing_new_comes(bucket: None, waiting: Callable[..., Any]) -> None:
    worker = join()
    answers, thread = waiting(worker)
    assert worker.say("drain").json()["status"] == "draining"
    thread.join(timeout=15)
    assert answers == [{"executions": [], "orders": []}]
    assert Worker.objects.get(id=worker.id).status == "draining"
    execution = make_execution()
    # It was being placed while the worker began to drain.
    Worker.objects.filter(id=worker.id).update(status="online")
    worker.place(execution)
    Worker.objects.filter(id=worker.id).update(status="draining")
    assert worker.ask()["executions"] == []


@pytest.mark.django_db(transaction=True)
def test_one_question_too_many_is_answered_at_once(bucket: None, settings: Settings) -> None:
    settings.PUNCTUAL_WAITING_CLAIMS = 0
    claiming._waiting.cache_clear()
    try:
        worker = join()
        began = time.monotonic()
        assert worker.ask(wait_seconds=20) == {"executions": [], "orders": []}
        assert time.monotonic() - began < 10
    finally:
        claiming._waiting.cache_clear()


def test_staff_drains_any_worker_and_others_none(staff: APIClient, client: APIClient, db: None) -> None:
    celery, remote = make_worker(), join()
    for worker_id in (celery.worker_id, remote.id):
        address = f"{API}/workers/{worker_id}/drain"
        assert client.post(address, {}, format="json").status_code == 403
        assert staff.post(address, {}, format="json").json()["status"] == "draining"
    assert staff.post(f"{API}/workers/{uuid4()}/drain", {}, format="json").status_code == 404
    assert remote.client.post(f"{API}/workers/{remote.id}/drain", {}, format="json").status_code == 400


def test_who_leaves_gives_back_what_it_holds(db: None) -> None:
    worker = join()
    execution = worker.place(make_execution())
    assert worker.say("leave").status_code == 204
    execution.refresh_from_db()
    assert (execution.state, Worker.objects.get(id=worker.id).status) == ("ready", "offline")


def test_workers_are_found_by_what_they_can(client: APIClient) -> None:
    join(capabilities=["bash", "python"])
    join(name="other", capabilities=["bash"])

    def names(query: str) -> set[str]:
        return {row["name"] for row in client.get(f"{API}/workers?{query}").json()["results"]}

    assert names("capabilities=bash") == {"remote", "other"}
    assert names("capabilities=bash,python&status=online") == {"remote"}
    assert names("capabilities=node") == set()
