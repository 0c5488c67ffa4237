"""PATCH and DELETE /jobs/{id}: permissions, effects and rejected input."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from jobs.models import Execution, Job, Schedule
from tests.integration.api.conftest import API, job_of
from tests.support.factories import make_execution, make_schedule

Submit = Callable[..., dict[str, Any]]
DAILY = [{"cron": "@daily"}]


def patch(client: APIClient, job: dict[str, Any], body: dict[str, Any]) -> Any:
    return client.patch(f"{API}/jobs/{job['id']}", body, format="json")


def edited(client: APIClient, job: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    response = patch(client, job, body)
    assert response.status_code == 200, response.content
    data: dict[str, Any] = response.json()
    warnings = data.pop("warnings")
    assert isinstance(warnings, list)
    assert client.get(f"{API}/jobs/{job['id']}").json() == data
    return data


def test_edit_changes_each_field_and_keeps_others(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=DAILY, env={"A": "b"}, requirements={"cpu": 0.5, "memory_mb": 99}, retry={"max_attempts": 4})
    body = {
        "name": "renamed", "runtime": "python", "script": "print()", "args": ["x"], "env": {"C": "d"}, "priority": 8,
        "requirements": {"memory_mb": 77}, "timeout_seconds": 9, "retry": {"backoff_seconds": 3, "on_exit_codes": [75]},
        "deadline_seconds": 90,        "max_concurrency": None, "overlap": "skip", "network": False,
    }  # fmt: skip
    data = edited(client, job, body)
    for name in body.keys() - {"script", "requirements", "retry"}:
        assert data[name] == body[name]
    assert data["requirements"] == {"cpu": 0.5, "memory_mb": 77, "disk_mb": 64, "capabilities": [], "resources": {}}
    retry = data["retry"]
    assert (retry["max_attempts"], retry["backoff_seconds"], retry["on_exit_codes"]) == (4, 3, [75])
    assert data["artifact"] != job["artifact"]
    assert (data["version"], data["schedules"]) == (2, job["schedules"])
    assert data["updated_at"] > job["updated_at"]


def test_null_clears_fields(submit: Submit, client: APIClient) -> None:
    job = submit(deadline_seconds=90, retry={"max_attempts": 4, "on_exit_codes": [75]})
    data = edited(client, job, {"deadline_seconds": None, "retry": {"on_exit_codes": None, "not_on_exit_codes": [2]}})
    retry = data["retry"]
    assert (data["deadline_seconds"], retry["on_exit_codes"], retry["not_on_exit_codes"]) == (None, None, [2])
    refused = client.patch(f"{API}/jobs/{job['id']}", {"delivery": "at_most_once"}, format="json")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "retry.max_attempts")
    edited(client, job, {"delivery": "at_most_once", "retry": {"max_attempts": 1}})


def test_empty_edit_changes_nothing(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=DAILY)
    data = edited(client, job, {})
    kept = {name: value for name, value in job.items() if name not in {"warnings", "updated_at"}}
    assert {name: data[name] for name in kept} == kept


def test_schedules_are_matched_by_id(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=[{"cron": "@daily"}, {"every_seconds": 60, "jitter_seconds": 5}, {"cron": "@hourly"}])
    first, second, third = job["schedules"]
    data = edited(
        client,
        job,
        {"schedules": [{"id": third["id"]}, {"id": second["id"], "every_seconds": 90}, {"solar": "sunset 48.85,2.35"}]},
    )
    by_id = {schedule["id"]: schedule for schedule in data["schedules"]}
    assert by_id[third["id"]] == third
    assert (by_id[second["id"]]["every_seconds"], by_id[second["id"]]["jitter_seconds"]) == (90, 5)
    assert first["id"] not in by_id
    assert len(by_id) == 3
    assert any("solar" in schedule for schedule in data["schedules"])


def test_nullable_fields_are_cleared(submit: Submit, client: APIClient) -> None:
    end = (datetime.now(UTC) + timedelta(days=900)).isoformat()
    (schedule,) = (job := submit(schedules=[{"cron": "@daily", "ends_at": end, "max_count": 5}]))["schedules"]
    (data,) = edited(client, job, {"schedules": [{"id": schedule["id"], "ends_at": None, "max_count": None}]})[
        "schedules"
    ]
    assert (data["ends_at"], data["max_count"], data["cron"]) == (None, None, "@daily")


def test_edit_returns_warnings(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=DAILY)
    response = patch(client, job, {"schedules": [{"every_seconds": 2}]})
    assert any("times a day" in warning for warning in response.json()["warnings"])


def test_job_switches_from_schedules_to_dependencies(submit: Submit, client: APIClient) -> None:
    upstream, job = submit(), submit(schedules=DAILY)
    dependency = {"job": upstream["id"], "condition": "completion"}
    data = edited(client, job, {"schedules": [], "dependencies": [dependency]})
    assert (data["schedules"], data["dependencies"]) == ([], [dependency])


BAD: list[tuple[str, dict[str, Any]]] = [
    ("nme", {"nme": "x"}),
    ("name", {"name": ""}),
    ("name", {"name": None}),
    ("queue", {"queue": "nowhere"}),
    ("script", {"script": "true", "artifact": "0198c0de-0000-7000-8000-000000000001"}),
    ("artifact", {"artifact": "0198c0de-0000-7000-8000-000000000001"}),
    ("priority", {"priority": 10}),
    ("retry.max_attempts", {"retry": {"max_attempts": 0}}),
    ("requirements.memory_mb", {"requirements": {"memory_mb": 0}}),
    ("env", {"env": {"PUNCTUAL_X": "y"}}),
    ("schedules.0.cron", {"schedules": [{"cron": "0 0 30 2 *"}]}),
    ("schedules.0.cron", {"schedules": [{}]}),
    ("schedules.0.timezone", {"schedules": [{"cron": "@daily", "timezone": "Mars"}]}),
    ("schedules.0.id", {"schedules": [{"id": "0198c0de-0000-7000-8000-000000000001"}]}),
    ("schedules.0.calendar", {"schedules": [{"cron": "@daily", "calendar": "unknown"}]}),
    ("schedules.0.every_seconds", {"schedules": [{"cron": "@daily", "every_seconds": 5}]}),
    ("dependencies.0.job", {"schedules": [], "dependencies": [{"job": "0198c0de-0000-7000-8000-000000000001"}]}),
    ("dependencies.0.job", {"schedules": [], "dependencies": [{}]}),
]


@pytest.mark.parametrize(("field", "body"), BAD, ids=[f"{i}-{field}" for i, (field, _) in enumerate(BAD)])
def test_invalid_edit_names_field_and_changes_nothing(
    submit: Submit, client: APIClient, field: str, body: dict[str, Any]
) -> None:
    job = submit(schedules=DAILY)
    before = client.get(f"{API}/jobs/{job['id']}").json()
    response = patch(client, job, {"args": ["changed"], **body})
    assert response.status_code == 400, response.content
    assert field in [error["field"] for error in response.json()["errors"]], response.json()
    assert client.get(f"{API}/jobs/{job['id']}").json() == before


def test_schedule_of_another_job_is_rejected(submit: Submit, client: APIClient) -> None:
    job, other = submit(schedules=DAILY), submit(schedules=DAILY)
    response = patch(client, job, {"schedules": [{"id": other["schedules"][0]["id"], "cron": "@hourly"}]})
    assert (response.status_code, response.json()["errors"][0]["field"]) == (400, "schedules.0.id")


def test_cancelled_job_conflicts(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=DAILY)
    client.put(f"{API}/jobs/{job['id']}/cancel")
    assert patch(client, job, {"name": "x"}).status_code == 409


def test_job_of_others_is_editable_by_staff_only(
    submit: Submit, client: APIClient, stranger: APIClient, staff: APIClient
) -> None:
    job = submit(schedules=DAILY)
    assert patch(stranger, job, {"name": "x"}).status_code == 404
    assert stranger.delete(f"{API}/jobs/{job['id']}").status_code == 404
    assert edited(staff, job, {"name": "by staff", "script": "echo other"})["owner"] == job["owner"]


def test_deleted_job_is_not_found_but_its_executions_are(submit: Submit, client: APIClient) -> None:
    job = submit()
    (execution,) = client.get(f"{API}/executions?job_id={job['id']}").json()["results"]
    response = client.delete(f"{API}/jobs/{job['id']}")
    assert (response.status_code, response.content) == (204, b"")
    address = f"{API}/jobs/{job['id']}"
    assert client.get(address).status_code == 404
    assert patch(client, job, {"name": "x"}).status_code == 404
    assert client.put(f"{address}/cancel").status_code == 404
    for verb in ("pause", "resume", "execute"):
        assert client.post(f"{address}/{verb}", {}, format="json").status_code == 404
    assert client.delete(address).status_code == 404
    assert client.get(f"{API}/jobs").json()["results"] == []
    (deleted,) = client.get(f"{API}/jobs?deleted=true").json()["results"]
    assert (deleted["id"], deleted["deleted_at"] is not None) == (job["id"], True)
    data = client.get(f"{API}/executions/{execution['id']}").json()
    assert (data["status"], data["job_name"]) == ("cancelled", "job")
    again = submit()
    assert (again["name"], again["id"] != job["id"]) == ("job", True)


def test_deletion_fires_due_instants_first(submit: Submit, client: APIClient) -> None:
    job = submit(schedules=DAILY)
    past = datetime.now(UTC) - timedelta(seconds=1)
    make_schedule(job=job_of(job), starts_at=past, next_instant=past)
    client.delete(f"{API}/jobs/{job['id']}")
    assert Execution.objects.get().trigger == "schedule"
    assert Schedule.objects.count() == 0
    assert Job.objects.get().state == "cancelled"


def test_deleted_job_is_rejected_as_upstream(submit: Submit, client: APIClient) -> None:
    job = submit()
    client.delete(f"{API}/jobs/{job['id']}")
    body = {"name": "x", "runtime": "bash", "script": "true", "dependencies": [{"job": job["id"]}]}
    response = client.post(f"{API}/jobs", body, format="json")
    assert response.json()["errors"][0]["field"] == "dependencies.0.job"


def test_schema_describes_edit_and_delete(client: APIClient) -> None:
    paths = client.get(f"{API}/schema?format=json").json()["paths"]
    assert {"get", "patch", "delete"} <= set(paths["/api/v1/jobs/{job_id}"])
    assert {"get", "post"} <= set(paths["/api/v1/calendars"])
    assert {"get", "patch", "delete"} <= set(paths["/api/v1/calendars/{calendar_id}"])
    reference = paths["/api/v1/jobs/{job_id}"]["patch"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    components = client.get(f"{API}/schema?format=json").json()["components"]["schemas"]
    assert not components[reference.rsplit("/", 1)[1]].get("required")


def ran(job: dict[str, Any], seconds: list[float]) -> None:
    for length in seconds:
        execution = make_execution(job=job_of(job))
        now = datetime.now(UTC)
        Execution.objects.filter(id=execution.id).update(
            state="succeeded", started_at=now - timedelta(seconds=length), ended_at=now
        )


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "more and more of them wait"),
        ({"overlap": "skip"}, "some of them are skipped"),
        ({"overlap": "cancel_running"}, "cancelled by those that follow"),
        ({"max_concurrency": 2}, "its runs overlap"),
        ({"max_concurrency": None}, "its runs overlap"),
    ],
)
def test_timeout_longer_than_interval_is_warned_of(
    submit: Submit, client: APIClient, changes: dict[str, Any], outcome: str
) -> None:
    job = submit(schedules=[{"every_seconds": 60}], timeout_seconds=3600)
    assert job["warnings"] == [], "a timeout is no runtime"
    ran(job, [1, 100, 90, 110, 3000])
    (warning,) = patch(client, job, changes).json()["warnings"]
    assert "takes 100 s, longer than the 60 s" in warning, "the middle one"
    assert outcome in warning
    assert patch(client, job, {"schedules": [{"cron": "*/2 * * * *"}, {"delay_seconds": 1}]}).json()["warnings"] == []
    (warning,) = patch(client, job, {"schedules": [{"cron": "0,1 12 * * *"}]}).json()["warnings"]
    assert "60 s" in warning, "the shortest gap counts"
