"""GET /audit: one's own changes, filtered, by page; and every kind of page on its index."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.models import AuditEntry
from jobs.services import commands
from tests.factories import make_job, make_user
from tests.integration.api.conftest import API, client_of

pytestmark = pytest.mark.django_db
Submit = Callable[..., dict[str, Any]]


def listed(client: APIClient, **query: str) -> list[dict[str, Any]]:
    response = client.get(f"{API}/audit", query)
    assert response.status_code == 200, response.content
    results: list[dict[str, Any]] = response.json()["results"]
    return results


def test_an_entry_tells_all_of_it(client: APIClient, owner: User, settings: Settings) -> None:
    settings.PUNCTUAL_TRUSTED_PROXIES = ["127.0.0.1/32"]
    job = make_job(owner=owner, name="nightly")
    headers = {"User-Agent": "punctual/1", "X-Forwarded-For": "198.51.100.7"}
    client.post(f"{API}/jobs/{job.id}/pause", {"note": "broken"}, format="json", headers=headers)
    (entry,) = listed(client)
    del entry["id"], entry["at"], entry["token_id"]
    assert entry == {
        "actor": owner.get_username(), "token": "test", "via": "cli", "address": "198.51.100.7",
        "action": "job.paused", "object_type": "job", "object_id": str(job.id), "object_name": "nightly",
        "owner": owner.get_username(), "before": {"note": "", "state": "active"},
        "after": {"note": "broken", "state": "paused"},
    }  # fmt: skip


def test_owners_read_of_their_own_and_staff_of_everything(
    client: APIClient, owner: User, stranger: APIClient, staff: APIClient
) -> None:
    job = make_job(owner=owner)
    staff.post(f"{API}/jobs/{job.id}/pause")
    stranger.post(f"{API}/calendars", {"name": "holidays"}, format="json")
    assert [entry["action"] for entry in listed(client)] == ["job.paused"], "whoever did it"
    assert [entry["action"] for entry in listed(stranger)] == ["calendar.created"]
    assert [entry["action"] for entry in listed(staff)] == ["calendar.created", "job.paused"]
    assert [entry["action"] for entry in listed(staff, owner=owner.get_username())] == ["job.paused"]
    assert listed(stranger, owner=owner.get_username()) == listed(staff, owner="nobody") == []


def test_entries_are_filtered(client: APIClient, owner: User) -> None:
    jobs = [make_job(owner=owner), make_job(owner=owner)]
    for job in jobs:
        client.post(f"{API}/jobs/{job.id}/pause")
        client.post(f"{API}/jobs/{job.id}/resume")
    client.post(f"{API}/calendars", {"name": "holidays"}, format="json")
    commands.cancel_job(jobs[0].id, by="")
    everything = listed(client)
    assert len(everything) == 6
    assert len(listed(client, action="job.paused")) == 2
    assert len(listed(client, object_type="calendar")) == 1
    assert len(listed(client, object_id=str(jobs[0].id))) == 3
    assert len(listed(client, actor=owner.get_username(), object_type="job")) == 4
    assert [entry["action"] for entry in listed(client, actor="system")] == ["job.cancelled"]
    moment = everything[2]["at"]
    assert listed(client, to=moment) == everything[2:]
    assert listed(client, **{"from": moment}) == everything[:3]
    assert listed(client, **{"from": "0001-01-01T00:00:00Z", "to": "9999-12-31T23:59:59Z"}) == everything
    first = client.get(f"{API}/audit?limit=4&object_type=job").json()
    second = client.get(first["next"]).json()
    assert [*first["results"], *second["results"]] == [each for each in everything if each["object_type"] == "job"]
    assert second["next"] is None


@pytest.mark.parametrize("query", ["from=yesterday", "to=2030-01-01", "objects=1", "cursor=x", "action=%00"])
def test_what_is_no_filter_is_refused_by_its_name(client: APIClient, query: str) -> None:
    response = client.get(f"{API}/audit?{query}")
    assert response.status_code == 400
    assert query.partition("=")[0] in str(response.json()["errors"])


def test_every_filter_stands_on_an_index(owner: User, staff: APIClient) -> None:
    """In a table where what is asked for is rare, and old: nothing else finds it soon."""
    rare = make_user()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO jobs_auditentry (id, at, actor_name, token_name, via, action, object_type, object_id,
                                         object_name, owner_id, before, after)
            SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, now(),
                   CASE WHEN n < 5 THEN 'rare' ELSE 'often' END, '', 'api',
                   CASE WHEN n < 5 THEN 'rare.made' ELSE 'job.created' END,
                   CASE WHEN n < 5 THEN 'rare' ELSE 'job' END, n::text, '',
                   CASE WHEN n < 5 THEN %s ELSE %s END, '{}', '{}'
              FROM generate_series(1, 20000) n
            """,
            [rare.pk, owner.pk],
        )
        cursor.execute("ANALYZE jobs_auditentry")
    asked = {
        "": "jobs_auditentry_pkey",
        "?actor=rare": "audit_by_actor",
        "?action=rare.made": "audit_by_action",
        "?object_type=rare": "audit_by_type",
        "?object_id=3": "audit_by_object",
        f"?owner={rare.get_username()}": "audit_by_owner",
        f"?from={(datetime.now(UTC) - timedelta(hours=1)).isoformat().replace('+00:00', 'Z')}": "jobs_auditentry_pkey",
    }
    seen = {query: _plan(staff, query) for query in asked}
    seen["own"] = _plan(client_of(rare), "")
    asked["own"] = "audit_by_owner"
    whole = "Seq Scan on jobs_auditentry"
    found = {query: (index in seen[query], whole in seen[query]) for query, index in asked.items()}
    assert found == dict.fromkeys(asked, (True, False)), seen


def _plan(client: APIClient, query: str) -> str:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(f"{API}/audit{query}").status_code == 200
    (page,) = [each["sql"] for each in queries if 'FROM "jobs_auditentry"' in each["sql"]]
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + page)
        return "\n".join(row[0] for row in cursor.fetchall())


def test_a_page_costs_as_many_queries_however_long_it_is(client: APIClient, owner: User) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            listed(client)
        return len(queries)

    client.post(f"{API}/jobs/{make_job(owner=owner).id}/pause")
    few = count()
    for _ in range(10):
        client.post(f"{API}/jobs/{make_job(owner=owner).id}/pause")
    assert count() == few
    assert AuditEntry.objects.count() == 11
