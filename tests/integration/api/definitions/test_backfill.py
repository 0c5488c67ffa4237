"""POST /jobs/{id}/backfill, GET /jobs/{id}/backfills, PUT /backfills/{id}/cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from jobs.models import Backfill
from jobs.scheduling.backfill import advance_backfills
from tests.integration.api.conftest import API

Submit = Callable[..., dict[str, Any]]
HOURLY = [{"cron": "0 * * * *"}]
RANGE = {"from": "2026-03-02T10:00:00Z", "to": "2026-03-02T13:00:00+00:00"}


def ask(client: APIClient, job: dict[str, Any], body: object = None) -> Any:
    return client.post(f"{API}/jobs/{job['id']}/backfill", RANGE if body is None else body, format="json")


def test_backfill_is_accepted_shown_and_completed(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=HOURLY)
    response = ask(client, job)
    assert response.status_code == 202, response.content
    data = response.json()
    assert (data["from"], data["to"]) == ("2026-03-02T10:00:00Z", "2026-03-02T13:00:00Z")
    assert (data["status"], data["created_count"], data["expected_count"]) == ("pending", 0, 4)
    assert data["job_id"] == job["id"]
    advance_backfills()
    (listed,) = client.get(f"{API}/jobs/{job['id']}/backfills").json()["results"]
    assert (listed["id"], listed["status"], listed["created_count"]) == (data["id"], "done", 4)
    assert listed["ended_at"] is not None
    triggers = [e["trigger"] for e in client.get(f"{API}/executions?job_id={job['id']}").json()["results"]]
    assert triggers == ["backfill"] * 4


def test_backfill_is_cancelled(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=HOURLY)
    data = ask(client, job).json()
    for _ in range(2):
        response = client.put(f"{API}/backfills/{data['id']}/cancel")
        assert response.status_code == 200, response.content
        assert response.json()["status"] == "cancelled"
    advance_backfills()
    assert client.get(f"{API}/executions?job_id={job['id']}").json()["results"] == []


def test_cancelling_finished_backfill_conflicts(submit: Submit, client: APIClient) -> None:
    data = ask(client, submit(schedules=HOURLY)).json()
    advance_backfills()
    assert client.put(f"{API}/backfills/{data['id']}/cancel").status_code == 409


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("from", {}),
        ("to", {"from": RANGE["from"]}),
        ("from", {"from": "2026-03-02T10:00:00", "to": RANGE["to"]}),
        ("from", {"from": 5, "to": RANGE["to"]}),
        ("from", {"from": RANGE["to"], "to": RANGE["from"]}),
        ("from", {"from": "0001-01-01T00:00:00Z", "to": RANGE["to"]}),
        ("from", {"from": "0001-01-01T00:00:00+14:00", "to": RANGE["to"]}),
        ("to", {"from": RANGE["from"], "to": "2090-01-01T00:00:00Z"}),
        ("until", RANGE | {"until": "x"}),
    ],
)
def test_invalid_range_names_field(submit: Submit, client: APIClient, field: str, body: object) -> None:
    response = ask(client, submit(schedules=HOURLY), body)
    assert response.status_code == 400, response.content
    assert field in [error["field"] for error in response.json()["errors"]]
    assert not Backfill.objects.exists()


def test_backfill_of_cancelled_or_unscheduled_job_conflicts(submit: Submit, client: APIClient) -> None:
    assert ask(client, submit()).status_code == 409
    job = submit(schedules=HOURLY)
    client.put(f"{API}/jobs/{job['id']}/cancel")
    assert ask(client, job).status_code == 409


def test_backfills_of_others_are_not_found(submit: Submit, client: APIClient, stranger: APIClient) -> None:
    job = submit(schedules=HOURLY)
    data = ask(client, job).json()
    assert ask(stranger, job).status_code == 404
    assert stranger.get(f"{API}/jobs/{job['id']}/backfills").status_code == 404
    assert stranger.put(f"{API}/backfills/{data['id']}/cancel").status_code == 404
    assert Backfill.objects.get().state == "pending"


def test_staff_may_cancel_backfill(submit: Submit, client: APIClient, staff: APIClient) -> None:
    data = ask(client, submit(schedules=HOURLY)).json()
    assert staff.put(f"{API}/backfills/{data['id']}/cancel").json()["status"] == "cancelled"
