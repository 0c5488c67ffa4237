"""Schedule previews: validated as for a job, and not stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.models import Job, Schedule
from tests.integration.api.conftest import API

Submit = Callable[..., dict[str, Any]]


def previewed(client: APIClient, *schedules: object, status: int = 200, **more: object) -> Any:
    response = client.post(f"{API}/schedules/preview", {"schedules": list(schedules), **more}, format="json")
    assert response.status_code == status, response.content
    return response.json()


def test_preview_merges_instants_and_stores_nothing(client: APIClient) -> None:
    data = previewed(
        client,
        {"cron": "0 3 * * *", "timezone": "Europe/Paris", "starts_at": "2090-01-01T00:00:00Z"},
        {"at": "2090-01-02T00:00:00Z"},
        count=3,
    )
    assert [each["at"] for each in data["results"]] == [
        "2090-01-01T02:00:00Z",
        "2090-01-02T00:00:00Z",
        "2090-01-02T02:00:00Z",
    ]
    assert data["results"][0]["local"] == "2090-01-01T03:00:00+01:00"
    assert (Job.objects.count(), Schedule.objects.count()) == (0, 0)


def test_stored_schedule_fires_as_previewed(submit: Submit, client: APIClient) -> None:
    calendar = {"name": "off", "dates": ["2090-01-02"]}
    assert client.post(f"{API}/calendars", calendar, format="json").status_code == 201
    written = {"every_seconds": 86400, "starts_at": "2090-01-01T05:00:00Z", "max_count": 2, "calendar": "off"}
    foreseen = previewed(client, written)
    job = submit(schedules=[written])
    assert client.get(f"{API}/jobs/{job['id']}/next").json() == foreseen
    assert [each["at"][:10] for each in foreseen["results"]] == ["2090-01-01", "2090-01-03"]


def test_hash_is_that_of_the_named_schedule(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=[{"cron": "H H * * *"}])
    (schedule,) = job["schedules"]
    foreseen = previewed(client, {"cron": "H H * * *", "id": schedule["id"]})
    assert client.get(f"{API}/jobs/{job['id']}/next").json() == foreseen


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "schedules"),
        ({"schedules": [{"cron": "99 * * * *"}]}, "schedules.0.cron"),
        ({"schedules": [{"cron": "@daily"}, {"at": "2001-01-01T00:00:00Z"}]}, "schedules.1.at"),
        ({"schedules": [{"cron": "@daily", "timezone": "Mars/Base"}]}, "schedules.0.timezone"),
        ({"schedules": [{"cron": "@daily", "calendar": "none"}]}, "schedules.0.calendar"),
        ({"schedules": [{"cron": "@daily"}], "count": 101}, "count"),
        ({"schedules": [{"every_seconds": 5}] * 51}, "schedules"),
        ({"schedules": [{"cron": "@daily"}], "jobs": []}, "jobs"),
    ],
)
def test_invalid_schedule_is_rejected_by_index(client: APIClient, body: dict[str, object], field: str) -> None:
    response = client.post(f"{API}/schedules/preview", body, format="json")
    assert response.status_code == 400, response.content
    assert response.json()["errors"][0]["field"].startswith(field)


def test_calendars_of_others_are_rejected(client: APIClient, stranger: APIClient) -> None:
    assert client.post(f"{API}/calendars", {"name": "off", "dates": []}, format="json").status_code == 201
    previewed(stranger, {"cron": "@daily", "calendar": "off"}, status=400)


def test_usage_returns_user_name(client: APIClient, owner: User) -> None:
    assert client.get(f"{API}/usage").json()["owner"] == owner.get_username()
