"""/audit/firings: one's own jobs, all of them for staff, and an answer as the schema says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.api.audit import AuditOutput
from jobs.models import Execution, Schedule
from tests.factories import make_job
from tests.integration.api.conftest import API
from tests.integration.services.test_auditing import fire_all, past_schedule

ADDRESS = f"{API}/audit/firings"


def since(minutes: float, **more: str) -> dict[str, str]:
    return {"from": (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat(), **more}


@pytest.fixture
def fired(owner: User) -> Schedule:
    schedule = past_schedule(5.5, job=make_job(owner=owner))
    fire_all()
    return schedule


def test_the_answer_has_every_documented_field_and_instants_in_utc(client: APIClient, fired: Schedule) -> None:
    shown = client.get(ADDRESS, since(60)).json()
    assert set(shown) == set(AuditOutput().fields)
    assert (shown["clean"], shown["fired"], shown["expected"], shown["differences"]) == (True, 5, 5, [])
    assert shown["from"].endswith("Z")
    assert set(shown["lateness_ms"]) == {"p50", "p90", "p99", "max"}


def test_a_difference_is_told_with_its_instant(client: APIClient, fired: Schedule) -> None:
    gone = Execution.objects.earliest("scheduled_for")
    Execution.objects.filter(id=gone.id).delete()
    shown = client.get(ADDRESS, since(60)).json()
    assert (shown["clean"], shown["absent"]) == (False, 1)
    instant = gone.scheduled_for.isoformat().replace("+00:00", "Z")
    assert shown["differences"] == [
        {"schedule_id": str(fired.id), "instant": instant, "what": "absent", "count": 1}
    ]  # fmt: skip


def test_everybody_audits_their_own_and_staff_all(
    client: APIClient, stranger: APIClient, staff: APIClient, fired: Schedule
) -> None:
    past_schedule(2.5)
    fire_all()
    assert [c.get(ADDRESS, since(60)).json()["fired"] for c in (client, stranger, staff)] == [5, 0, 7]
    one = since(60, job_id=str(fired.job_id))
    assert [c.get(ADDRESS, one).status_code for c in (client, stranger, staff)] == [200, 404, 200]
    assert staff.get(ADDRESS, one).json()["fired"] == 5
    assert staff.get(ADDRESS, since(60, job_id=str(uuid4()))).status_code == 404


def test_a_stranger_to_the_house_gets_nothing(db: None) -> None:
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
def test_a_bad_query_names_its_parameter(client: APIClient, query: dict[str, str], field: str) -> None:
    response = client.get(ADDRESS, query)
    assert response.status_code == 400
    assert response.json()["errors"][0]["field"] == field


def test_the_schema_knows_the_parameters(client: APIClient) -> None:
    operation = client.get(f"{API}/schema?format=json").json()["paths"][ADDRESS]["get"]
    assert {(p["name"], p.get("required", False)) for p in operation["parameters"]} == {
        ("from", True),
        ("to", False),
        ("job_id", False),
    }
