"""Retry, redrive and dismiss executions over HTTP."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from jobs.domain.states import Reason
from jobs.domain.worker_protocol import RunReport
from jobs.execution.attempts import finish_attempt
from jobs.models import Execution
from tests.integration.api.conftest import API
from tests.support.factories import make_execution, make_job, make_user, make_worker, run_on


def fail(owner: User) -> Execution:
    execution = make_execution(job=make_job(owner=owner))
    finish_attempt(run_on(make_worker(), execution), RunReport(Reason.EXIT, exit_code=3))
    return execution


def listed(client: APIClient, query: str = "") -> list[str]:
    response = client.get(f"{API}/dead-letters{query}")
    assert response.status_code == 200, response.content
    return [letter["id"] for letter in response.json()["results"]]


def test_dead_letters_are_listed_newest_first_by_job_and_page(client: APIClient, owner: User) -> None:
    first, second = fail(owner), fail(owner)
    make_execution(job=make_job(owner=owner))
    assert listed(client) == [str(second.id), str(first.id)]
    assert listed(client, f"?job_id={first.job_id}") == [str(first.id)]
    page = client.get(f"{API}/dead-letters?limit=1").json()
    assert [letter["id"] for letter in page["results"]] == [str(second.id)]
    assert [letter["id"] for letter in client.get(page["next"]).json()["results"]] == [str(first.id)]
    (data,) = client.get(f"{API}/dead-letters?job_id={first.job_id}").json()["results"]
    assert (data["status"], data["exit_code"], data["dead_letter"]) == ("failed", 3, "open")
    assert client.get(f"{API}/dead-letters?status=x").status_code == 400


def test_redrive_creates_execution_once(client: APIClient, owner: User) -> None:
    letter = fail(owner)
    response = client.post(f"{API}/dead-letters/{letter.id}/redrive")
    assert response.status_code == 201
    created = response.json()
    assert (created["status"], created["trigger"], created["retry_of"]) == ("ready", "retry", str(letter.id))
    assert (listed(client), listed(client, "?status=redriven")) == ([], [str(letter.id)])
    again = client.post(f"{API}/dead-letters/{letter.id}/redrive")
    assert (again.status_code, created["id"] in again.json()["detail"]) == (409, True)
    found = client.get(f"{API}/executions?retry_of={letter.id}").json()["results"]
    assert [execution["id"] for execution in found] == [created["id"]]
    (event,) = client.get(f"{API}/executions/{letter.id}/events").json()["results"]
    assert (event["name"], event["detail"]["as"]) == ("execution.redriven", created["id"])


def test_dismissed_letter_leaves_the_list(client: APIClient, owner: User) -> None:
    letter = fail(owner)
    for _ in range(2):
        response = client.post(f"{API}/dead-letters/{letter.id}/dismiss")
        assert (response.status_code, response.json()["dead_letter"]) == (200, "dismissed")
    assert (listed(client), listed(client, "?status=dismissed")) == ([], [str(letter.id)])
    assert client.post(f"{API}/dead-letters/{letter.id}/redrive").status_code == 409


def test_retry_of_an_execution(client: APIClient, owner: User) -> None:
    waiting = make_execution(job=make_job(owner=owner))
    assert client.post(f"{API}/executions/{waiting.id}/retry").status_code == 409
    client.put(f"{API}/executions/{waiting.id}/cancel")
    response = client.post(f"{API}/executions/{waiting.id}/retry", {}, format="json")
    assert (response.status_code, response.json()["retry_of"]) == (201, str(waiting.id))
    assert client.get(f"{API}/executions/{waiting.id}").json()["status"] == "cancelled"
    refused = client.post(f"{API}/executions/{waiting.id}/retry", {"worker": "x"}, format="json")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "worker")


ADDRESSES = ["executions/{}/retry", "dead-letters/{}/redrive", "dead-letters/{}/dismiss"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_dead_letters_of_others_are_not_found(stranger: APIClient, staff: APIClient, owner: User, address: str) -> None:
    letter = fail(owner)
    assert stranger.post(f"{API}/{address.format(letter.id)}").status_code == 404
    assert stranger.post(f"{API}/{address.format(uuid4())}").status_code == 404
    assert listed(stranger) == []
    letter.refresh_from_db()
    assert letter.dead_letter == "open"
    assert staff.post(f"{API}/{address.format(letter.id)}").status_code in {200, 201}


@pytest.mark.parametrize("address", ADDRESSES[1:])
def test_other_executions_are_no_dead_letters(client: APIClient, owner: User, address: str) -> None:
    waiting = make_execution(job=make_job(owner=owner))
    assert client.post(f"{API}/{address.format(waiting.id)}").status_code == 404


def test_schema_and_admin_show_dead_letters(client: APIClient, owner: User) -> None:
    letter = fail(owner)
    schema = client.get(f"{API}/schema").content.decode()
    for operation in ("dead_letters_list", "dead_letters_redrive", "dead_letters_dismiss", "executions_retry"):
        assert f"operationId: {operation}" in schema
    admin = Client()
    admin.force_login(make_user(is_staff=True, is_superuser=True))
    page = admin.get("/admin/jobs/execution/?dead_letter__exact=open").content.decode()
    assert str(letter.id) in page
    assert "By dead letter" in page
    assert str(letter.id) not in admin.get("/admin/jobs/execution/?dead_letter__exact=dismissed").content.decode()
    assert "open" in admin.get(f"/admin/jobs/execution/{letter.id}/change/").content.decode().lower()
