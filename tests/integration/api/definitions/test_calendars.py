"""/calendars: named dates shared by schedules; an edit moves all of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from jobs.models import Calendar, Schedule
from jobs.verify.firings import audit_firings
from tests.integration.api.conftest import API
from tests.support.factories import make_user

Submit = Callable[..., dict[str, Any]]
TODAY = datetime.now(UTC).date()
# From the day after tomorrow on, so that a midnight during the test does not matter.
DAYS = [(TODAY + timedelta(days=n)).isoformat() for n in range(2, 8)]


def create(client: APIClient, name: str = "holidays", dates: list[str] | None = None) -> dict[str, Any]:
    response = client.post(
        f"{API}/calendars", {"name": name, "dates": DAYS[:1] if dates is None else dates}, format="json"
    )
    assert response.status_code == 201, response.content
    data: dict[str, Any] = response.json()
    assert client.get(response["Location"]).json() == data
    return data


def patch(client: APIClient, calendar: dict[str, Any], **body: Any) -> Any:
    return client.patch(f"{API}/calendars/{calendar['id']}", body, format="json")


def days_of(client: APIClient, job: dict[str, Any], count: int = 5) -> list[str]:
    found = client.get(f"{API}/jobs/{job['id']}/next?count={count}").json()["results"]
    return [instant["at"][:10] for instant in found]


def test_calendar_is_created_listed_edited_and_deleted(client: APIClient, owner: User) -> None:
    calendar = create(client, dates=[DAYS[1], DAYS[0], DAYS[0]])
    assert calendar["dates"] == DAYS[:2], "sorted and unique"
    assert (calendar["owner"], calendar["used_by"]) == (owner.get_username(), 0)
    assert client.get(f"{API}/calendars").json()["results"] == [calendar]
    data = patch(client, calendar, name="renamed").json()
    assert (data["name"], data["dates"]) == ("renamed", calendar["dates"])
    assert patch(client, calendar, dates=[]).json()["dates"] == []
    response = client.delete(f"{API}/calendars/{calendar['id']}")
    assert (response.status_code, response.content) == (204, b"")
    assert client.get(f"{API}/calendars/{calendar['id']}").status_code == 404


@pytest.mark.parametrize("called", ["id", "name"])
def test_schedule_excludes_dates_of_calendar_and_own_dates(submit: Submit, client: APIClient, called: str) -> None:
    calendar = create(client)
    schedule = {"cron": "0 12 * * *", "excluded_dates": [DAYS[2]], "calendar": calendar[called]}
    job = submit(schedules=[schedule])
    (data,) = job["schedules"]
    assert (data["calendar"], data["excluded_dates"]) == (calendar["id"], [DAYS[2]])
    assert "2 excluded dates" in data["in_words"]
    coming = days_of(client, job, 4)
    assert DAYS[1] in coming
    assert not {DAYS[0], DAYS[2]} & set(coming)
    assert client.get(f"{API}/calendars/{calendar['id']}").json()["used_by"] == 1


def test_calendar_edit_moves_its_schedules(submit: Submit, client: APIClient) -> None:
    calendar = create(client)
    users = [submit(schedules=[{"cron": "0 12 * * *", "calendar": "holidays"}]) for _ in range(3)]
    other = submit(schedules=[{"cron": "0 12 * * *"}])
    assert patch(client, calendar, dates=DAYS[:3]).status_code == 200
    for job in users:
        assert not set(DAYS[:3]) & set(days_of(client, job))
    assert DAYS[0] in days_of(client, other)
    for schedule in Schedule.objects.filter(calendar__isnull=False):
        old, new = schedule.history.order_by("number")
        assert (old.to_at, new.to_at) == (new.from_at, None)
        assert [d.isoformat() for d in new.excluded_dates] == DAYS[:3]
        assert len(old.excluded_dates) == 1
    assert other["schedules"] == client.get(f"{API}/jobs/{other['id']}").json()["schedules"]
    assert patch(client, calendar, name="same dates", dates=DAYS[:3]).status_code == 200
    assert {s.history.count() for s in Schedule.objects.filter(calendar__isnull=False)} == {2}


def test_removing_date_moves_next_instant_back(submit: Submit, client: APIClient) -> None:
    soon = [(TODAY + timedelta(days=n)).isoformat() for n in range(3)]
    calendar = create(client, dates=soon)
    job = submit(schedules=[{"every_seconds": 60, "calendar": "holidays"}])
    assert job["next_instant"][:10] == DAYS[1]
    patch(client, calendar, dates=[])
    data = client.get(f"{API}/jobs/{job['id']}").json()
    assert datetime.fromisoformat(data["next_instant"]) < datetime.now(UTC) + timedelta(minutes=2)
    now = datetime.now(UTC)
    assert audit_firings(now - timedelta(hours=1), now).clean


def test_calendar_edit_fires_due_instants_and_keeps_pause(submit: Submit, client: APIClient) -> None:
    calendar = create(client)
    job = submit(schedules=[{"every_seconds": 60, "calendar": "holidays", "catch_up": "all"}])
    paused = submit(schedules=[{"every_seconds": 60, "calendar": "holidays"}])
    client.post(f"{API}/jobs/{paused['id']}/pause", {}, format="json")
    past = datetime.now(UTC) - timedelta(seconds=1)
    Schedule.objects.filter(job_id=job["id"]).update(starts_at=past, next_instant=past, next_fire_at=past)
    patch(client, calendar, dates=[TODAY.isoformat(), *DAYS])
    assert len(client.get(f"{API}/executions?job_id={job['id']}").json()["results"]) == 1
    paused_schedule = Schedule.objects.get(job_id=paused["id"])
    assert paused_schedule.next_instant is None
    assert [v.paused for v in paused_schedule.history.order_by("number")] == [False, True, True]


def test_edit_leaving_no_instants_names_the_job(submit: Submit, client: APIClient) -> None:
    calendar = create(client)
    last = f"{DAYS[2]}T23:00:00Z"
    submit(schedules=[{"cron": "0 12 * * *", "calendar": "holidays"}])
    job = submit(name="ends-soon", schedules=[{"cron": "0 12 * * *", "ends_at": last, "calendar": "holidays"}])
    before = list(Schedule.objects.order_by("id").values())
    everything = [TODAY.isoformat(), (TODAY + timedelta(days=1)).isoformat(), *DAYS[:3]]
    response = patch(client, calendar, name="other", dates=everything)
    assert response.status_code == 400
    (error,) = response.json()["errors"]
    assert error["field"] == "dates"
    assert "ends-soon" in error["message"]
    assert job["schedules"][0]["id"] in error["message"]
    assert list(Schedule.objects.order_by("id").values()) == before
    assert Calendar.objects.get().name == "holidays", "refused as a whole"


def test_calendar_in_use_cannot_be_deleted(submit: Submit, client: APIClient) -> None:
    calendar = create(client)
    jobs = [submit(name=f"user-{n}", schedules=[{"cron": "@daily", "calendar": "holidays"}]) for n in range(5)]
    response = client.delete(f"{API}/calendars/{calendar['id']}")
    assert response.status_code == 409
    assert "user-0, user-1, user-2 and others" in response.json()["detail"]
    client.patch(
        f"{API}/jobs/{jobs[0]['id']}",
        {"schedules": [{"id": jobs[0]["schedules"][0]["id"], "calendar": None}]},
        format="json",
    )
    client.patch(f"{API}/jobs/{jobs[1]['id']}", {"schedules": []}, format="json")
    client.delete(f"{API}/jobs/{jobs[2]['id']}")
    client.put(f"{API}/jobs/{jobs[3]['id']}/cancel")
    assert "by user-4;" in client.delete(f"{API}/calendars/{calendar['id']}").json()["detail"]
    client.delete(f"{API}/jobs/{jobs[4]['id']}")
    assert client.delete(f"{API}/calendars/{calendar['id']}").status_code == 204
    kept = Schedule.objects.get(job_id=jobs[3]["id"])
    assert ([d.isoformat() for d in kept.excluded_dates], kept.calendar_id) == (DAYS[:1], None)


def test_schedule_edit_adds_and_removes_calendar(submit: Submit, client: APIClient) -> None:
    create(client)
    job = submit(schedules=[{"cron": "0 12 * * *", "excluded_dates": [DAYS[3]]}])
    own = job["schedules"][0]["id"]

    def edit(**changes: Any) -> dict[str, Any]:
        response = client.patch(f"{API}/jobs/{job['id']}", {"schedules": [{"id": own, **changes}]}, format="json")
        assert response.status_code == 200, response.content
        (data,) = response.json()["schedules"]
        assert data["id"] == own
        kept: dict[str, Any] = data
        return kept

    assert "2 excluded" in edit(calendar="holidays")["in_words"]
    assert edit(excluded_dates=[])["excluded_dates"] == []
    assert DAYS[0] not in days_of(client, job)
    assert edit(calendar=None)["calendar"] is None
    assert DAYS[0] in days_of(client, job)


def test_names_are_unique_per_owner(client: APIClient, stranger: APIClient) -> None:
    create(client)
    response = client.post(f"{API}/calendars", {"name": "holidays"}, format="json")
    assert response.status_code == 409
    assert "holidays" in response.json()["detail"]
    other = create(client, "other")
    assert patch(client, other, name="holidays").status_code == 409
    create(stranger)


def test_calendars_of_others_are_not_found(
    submit: Submit, client: APIClient, stranger: APIClient, staff: APIClient
) -> None:
    foreign = create(stranger)
    assert client.get(f"{API}/calendars/{foreign['id']}").status_code == 404
    assert patch(client, foreign, dates=[]).status_code == 404
    assert client.delete(f"{API}/calendars/{foreign['id']}").status_code == 404
    assert client.get(f"{API}/calendars").json()["results"] == []
    assert len(staff.get(f"{API}/calendars").json()["results"]) == 1
    for called in (foreign["id"], foreign["name"]):
        body = {"name": "x", "runtime": "bash", "script": "true", "schedules": [{"cron": "@daily", "calendar": called}]}
        response = client.post(f"{API}/jobs", body, format="json")
        assert (response.status_code, response.json()["errors"][0]["field"]) == (400, "schedules.0.calendar")


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("name", {"name": ""}),
        ("name", {"name": " "}),
        ("name", {"name": "a\nb"}),
        ("name", {"name": "x" * 101}),
        ("name", {"name": "0198c0de-0000-7000-8000-000000000001"}),
        ("dates.0", {"name": "x", "dates": ["tomorrow"]}),
        ("dates", {"name": "x", "dates": "2030-01-01"}),
        ("dates", {"name": "x", "dates": ["1900-01-01"]}),
        ("dates", {"name": "x", "dates": ["2030-01-01"] * 3661}),
        ("days", {"name": "x", "days": []}),
    ],
)
def test_invalid_calendar_is_rejected(client: APIClient, field: str, body: dict[str, Any]) -> None:
    response = client.post(f"{API}/calendars", body, format="json")
    assert response.status_code == 400, response.content
    assert field in [error["field"] for error in response.json()["errors"]], response.json()
    assert not Calendar.objects.exists()


def test_submission_names_calendar_that_excludes_everything(client: APIClient, bucket: None) -> None:
    create(client, dates=DAYS[:1])
    schedule = {"at": f"{DAYS[0]}T12:00:00Z", "calendar": "holidays"}
    response = client.post(
        f"{API}/jobs", {"name": "x", "runtime": "bash", "script": "true", "schedules": [schedule]}, format="json"
    )
    assert (response.status_code, response.json()["errors"][0]["field"]) == (400, "schedules.0.calendar")


def test_admin_shows_calendars_read_only(submit: Submit, client: APIClient) -> None:
    calendar = create(client)
    submit(schedules=[{"cron": "@daily", "calendar": "holidays"}])
    admin = Client()
    admin.force_login(make_user(is_staff=True, is_superuser=True))
    assert b"holidays" in admin.get("/admin/jobs/calendar/").content
    page = admin.get(f"/admin/jobs/calendar/{calendar['id']}/change/")
    assert page.status_code == 200
    assert b"@daily" in page.content
    assert admin.post(f"/admin/jobs/calendar/{calendar['id']}/change/", {"name": "x"}).status_code == 403
