"""POST /jobs/{id}/pause and /resume: permissions, representation and effect on firing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from jobs.models import Schedule
from tests.integration.api.conftest import API

Submit = Callable[..., dict[str, Any]]
DAILY = [{"cron": "@daily"}]


def post(client: APIClient, job: dict[str, Any], verb: str, body: object = None) -> Any:
    return client.post(f"{API}/jobs/{job['id']}/{verb}", body or {}, format="json")


def test_paused_job_shows_time_and_note(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=DAILY)
    response = post(client, job, "pause", {"note": "the warehouse moves"})
    assert response.status_code == 200, response.content
    data = response.json()
    assert (data["status"], data["paused_note"], data["next_instant"]) == ("paused", "the warehouse moves", None)
    assert data["paused_at"] is not None
    assert client.get(f"{API}/jobs/{job['id']}").json() == data
    assert [j["id"] for j in client.get(f"{API}/jobs?status=paused").json()["results"]] == [job["id"]]
    assert client.get(f"{API}/jobs/{job['id']}/next").json() == {"results": []}


def test_resumed_job_is_as_before(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=DAILY)
    post(client, job, "pause", {"note": "x"})
    response = post(client, job, "resume")
    assert response.status_code == 200, response.content
    data = response.json()
    assert (data["status"], data["paused_at"], data["paused_note"]) == ("scheduled", None, "")
    assert data["next_instant"] == job["next_instant"]


def test_note_is_optional_and_replaceable(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=DAILY)
    first = post(client, job, "pause").json()
    second = post(client, job, "pause", {"note": "later"}).json()
    assert (first["paused_note"], second["paused_note"]) == ("", "later")
    assert first["paused_at"] == second["paused_at"]


def test_resume_is_idempotent(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=DAILY)
    post(client, job, "pause")
    assert post(client, job, "resume").status_code == 200
    before = Schedule.objects.values().get()
    assert post(client, job, "resume").status_code == 200
    assert Schedule.objects.values().get() == before


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_cancelled_job_conflicts(submit: Submit, client: APIClient, verb: str) -> None:
    job = submit(schedules=DAILY)
    client.put(f"{API}/jobs/{job['id']}/cancel")
    response = post(client, job, verb)
    assert response.status_code == 409
    assert "cancelled" in response.json()["detail"]


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_job_of_others_is_not_found(submit: Submit, stranger: APIClient, client: APIClient, verb: str) -> None:
    job = submit(schedules=DAILY)
    assert post(stranger, job, verb).status_code == 404
    assert client.get(f"{API}/jobs/{job['id']}").json()["status"] == "scheduled"


@pytest.mark.parametrize(("verb", "body"), [("pause", {"note": 5}), ("pause", {"why": "x"}), ("resume", {"note": "x"})])
def test_invalid_bodies_are_rejected(submit: Submit, client: APIClient, verb: str, body: dict[str, Any]) -> None:
    job = submit(schedules=DAILY)
    assert post(client, job, verb, body).status_code == 400
    assert client.get(f"{API}/jobs/{job['id']}").json()["status"] == "scheduled"


def test_note_length_is_bounded(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=DAILY)
    assert post(client, job, "pause", {"note": "x" * 1001}).status_code == 400
    assert post(client, job, "pause", {"note": "x" * 1000}).status_code == 200
