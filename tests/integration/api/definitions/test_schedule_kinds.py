"""Every kind of schedule is accepted, shown as submitted and previewed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from rest_framework.test import APIClient

from jobs.models import Schedule
from tests.integration.api.conftest import API, job_body

Submit = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    "written",
    [
        {"cron": "H 3 * * *"},
        {"cron": "@hourly"},
        {"every_seconds": 1.5},
        {"delay_seconds": 30.0},
        {"at": "2090-01-01T00:00:00Z"},
        {"solar": "sunset 48.85,2.35"},
    ],
)
def test_schedule_is_shown_as_submitted(submit: Submit, written: dict[str, Any]) -> None:
    (data,) = submit(schedules=[written])["schedules"]
    assert {name: data[name] for name in written} == written
    others = {"cron", "every_seconds", "delay_seconds", "at", "solar"} - set(written)
    assert not others & set(data)


def test_dates_count_and_overlap_are_stored_and_shown(submit: Submit) -> None:
    data = submit(
        overlap="cancel_running",
        schedules=[{"cron": "@daily", "excluded_dates": ["2090-12-25", "2090-01-01"], "max_count": 3}],
    )
    (schedule,) = data["schedules"]
    assert data["overlap"] == "cancel_running"
    assert schedule["excluded_dates"] == ["2090-01-01", "2090-12-25"]
    assert (schedule["max_count"], schedule["settled_count"]) == (3, 0)


def test_fixed_delay_is_due_at_once_and_previews_one_instant(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=[{"delay_seconds": 30, "timezone": "Asia/Tokyo"}])
    schedule = Schedule.objects.get()
    assert schedule.next_instant == schedule.starts_at
    (instant,) = client.get(f"{API}/jobs/{job['id']}/next").json()["results"]
    assert datetime.fromisoformat(instant["at"]) == schedule.next_instant
    assert instant["local"].endswith("+09:00")


def test_preview_stops_at_max_count(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=[{"every_seconds": 60, "max_count": 3}])
    assert len(client.get(f"{API}/jobs/{job['id']}/next?count=10").json()["results"]) == 3


def test_preview_omits_excluded_dates(submit: Submit, client: APIClient) -> None:
    schedules = [{"cron": "0 9 * * *", "starts_at": "2090-01-01T00:00:00Z", "excluded_dates": ["2090-01-02"]}]
    job = submit(schedules=schedules)
    days = [i["at"][:10] for i in client.get(f"{API}/jobs/{job['id']}/next?count=3").json()["results"]]
    assert days == ["2090-01-01", "2090-01-03", "2090-01-04"]


def test_preview_explains_daylight_saving(submit: Submit, client: APIClient) -> None:
    # Clocks in New York skip 02:30 on 14 March 2027 and go back on 7 November.
    job = submit(
        schedules=[{"cron": "30 2 * * *", "timezone": "America/New_York", "starts_at": "2027-03-13T00:00:00Z"}]
    )
    results = client.get(f"{API}/jobs/{job['id']}/next?count=3").json()["results"]
    assert [i["at"] for i in results] == ["2027-03-13T07:30:00Z", "2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"]
    assert results[1]["local"] == "2027-03-14T03:00:00-04:00"
    assert results[0]["note"] is None
    assert "02:30 does not exist" in results[1]["note"]


@pytest.mark.parametrize(
    ("field", "schedule"),
    [
        ("solar", {"solar": "sunset"}),
        ("solar", {"solar": "sunset 91,0"}),
        ("delay_seconds", {"delay_seconds": 0}),
        ("delay_seconds", {"delay_seconds": 5, "solar": "sunset 1,1"}),
        ("cron", {"cron": "H(5-99) * * * *"}),
        ("max_count", {"cron": "@daily", "max_count": 2**31}),
        ("excluded_dates", {"cron": "@daily", "excluded_dates": "2030-01-01"}),
    ],
)
def test_invalid_schedule_names_field(client: APIClient, bucket: None, field: str, schedule: dict[str, Any]) -> None:
    response = client.post(f"{API}/jobs", job_body(schedules=[schedule]), format="json")
    assert response.status_code == 400, response.content
    named = [error["field"] for error in response.json()["errors"]]
    assert any(name.startswith(f"schedules.0.{field}") or name == "schedules.0.solar" for name in named), named
    assert not Schedule.objects.exists()


def test_hashed_schedule_keeps_its_minute(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=[{"cron": "H * * * *"}])
    results = client.get(f"{API}/jobs/{job['id']}/next?count=5").json()["results"]
    minutes = {datetime.fromisoformat(i["at"]).astimezone(UTC).minute for i in results}
    assert len(minutes) == 1
