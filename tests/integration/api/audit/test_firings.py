"""/audit/firings: own jobs for users, all jobs for staff, in the documented form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.access.waiter_pool import expensive_read
from jobs.api.resources.audit_firings import AuditOutput
from jobs.models import Execution, Schedule
from tests.integration.api.conftest import API
from tests.support.factories import make_job
from tests.support.past_schedules import fire_all, past_schedule

ADDRESS = f"{API}/audit/firings"


def since(minutes: float, **more: str) -> dict[str, str]:
    return {"from": (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat(), **more}


@pytest.fixture
def fired(owner: User) -> Schedule:
    schedule = past_schedule(5.5, job=make_job(owner=owner))
    fire_all()
    return schedule


def test_report_has_every_documented_field_and_utc_instants(client: APIClient, fired: Schedule) -> None:
    data = client.get(ADDRESS, since(60)).json()
    assert set(data) == set(AuditOutput().fields)
    assert (data["clean"], data["fired"], data["expected"], data["differences"]) == (True, 5, 5, [])
    assert data["from"].endswith("Z")
    assert set(data["lateness_ms"]) == {"p50", "p90", "p99", "max"}


def test_difference_is_reported_with_instant(client: APIClient, fired: Schedule) -> None:
    gone = Execution.objects.earliest("scheduled_for")
    Execution.objects.filter(id=gone.id).delete()
    data = client.get(ADDRESS, since(60)).json()
    assert (data["clean"], data["absent"]) == (False, 1)
    instant = gone.scheduled_for.isoformat().replace("+00:00", "Z")
    assert data["differences"] == [
        {"schedule_id": str(fired.id), "instant": instant, "what": "absent", "count": 1}
    ]  # fmt: skip


def test_users_audit_own_jobs_and_staff_all(
    client: APIClient, stranger: APIClient, staff: APIClient, fired: Schedule
) -> None:
    past_schedule(2.5)
    fire_all()
    assert [c.get(ADDRESS, since(60)).json()["fired"] for c in (client, stranger, staff)] == [5, 0, 7]
    one = since(60, job_id=str(fired.job_id))
    assert [c.get(ADDRESS, one).status_code for c in (client, stranger, staff)] == [200, 404, 200]
    assert staff.get(ADDRESS, one).json()["fired"] == 5
    assert staff.get(ADDRESS, since(60, job_id=str(uuid4()))).status_code == 404


def test_anonymous_audit_is_rejected(db: None) -> None:
    assert APIClient().get(ADDRESS, since(60)).status_code == 401


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"from": "2030-01-01T00:00"}, "from"),
        ({"from": "2030-01-01T00:00:00Z", "to": "2029-01-01T00:00:00Z"}, "from"),
        ({"from": "2020-01-01T00:00:00Z", "job_id": "x"}, "job_id"),
        ({"from": "2020-01-01T00:00:00Z", "job": "x"}, "job"),
    ],
)
def test_invalid_query_names_parameter(client: APIClient, query: dict[str, str], field: str) -> None:
    response = client.get(ADDRESS, query)
    assert response.status_code == 400
    assert response.json()["errors"][0]["field"] == field


def test_schema_documents_parameters(client: APIClient) -> None:
    operation = client.get(f"{API}/schema?format=json").json()["paths"][ADDRESS]["get"]
    assert {(p["name"], p.get("required", False)) for p in operation["parameters"]} == {
        ("from", True),
        ("to", False),
        ("job_id", False),
    }


def test_concurrent_audits_are_limited_per_user_and_process(
    client: APIClient, owner: User, stranger: APIClient, staff: APIClient
) -> None:
    with expensive_read(owner.pk):
        refused = client.get(ADDRESS, since(60))
        assert (refused.status_code, refused["Retry-After"]) == (429, "5")
        assert "Another audit of yours" in refused.json()["detail"]
        assert stranger.get(ADDRESS, since(60)).status_code == 200, "another user's audit still runs"
        with expensive_read(-1):
            busy = staff.get(ADDRESS, since(60))
            assert busy.status_code == 503
            assert int(busy["Retry-After"]) > 0
    assert client.get(ADDRESS, since(60)).status_code == 200
