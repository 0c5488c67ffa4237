"""GET /audit: visibility, filters and pages; every filter uses an index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations, product
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.api.resources.audit_entries import AuditEntryQuery
from jobs.db import keyset
from jobs.definitions import lifecycle
from jobs.models import AuditEntry
from tests.integration.api.conftest import API, client_of
from tests.support.factories import make_job, make_user

pytestmark = pytest.mark.django_db
Submit = Callable[..., dict[str, Any]]


def listed(client: APIClient, **query: str) -> list[dict[str, Any]]:
    response = client.get(f"{API}/audit", query)
    assert response.status_code == 200, response.content
    results: list[dict[str, Any]] = response.json()["results"]
    return results


def test_entry_has_all_fields(client: APIClient, owner: User, settings: Settings) -> None:
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


def test_owners_read_own_entries_and_staff_all(
    client: APIClient, owner: User, stranger: APIClient, staff: APIClient
) -> None:
    job = make_job(owner=owner)
    staff.post(f"{API}/jobs/{job.id}/pause")
    stranger.post(f"{API}/calendars", {"name": "holidays"}, format="json")
    assert [entry["action"] for entry in listed(client)] == ["job.paused"], "regardless of the actor"
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
    lifecycle.cancel_job(jobs[0].id, by="")
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
def test_unknown_filter_is_rejected_by_name(client: APIClient, query: str) -> None:
    response = client.get(f"{API}/audit?{query}")
    assert response.status_code == 400
    assert query.partition("=")[0] in str(response.json()["errors"])


def test_every_filter_uses_an_index(rare: User, staff: APIClient) -> None:
    """Fill the table so that the wanted entries are rare and old, and only an index finds them fast."""
    asked = {
        "": "jobs_auditentry_pkey",
        "?actor=rare": "audit_by_actor",
        "?action=rare.made": "audit_by_action",
        "?object_type=rare": "audit_by_type",
        "?object_id=3": "audit_by_object",
        f"?owner={rare.get_username()}": "audit_by_owner",
        f"?from={(datetime.now(UTC) - timedelta(hours=1)).isoformat().replace('+00:00', 'Z')}": "jobs_auditentry_pkey",
    }
    seen = {query: "\n".join(_plans(staff, query)) for query in asked}
    seen["own"] = "\n".join(_plans(client_of(rare), ""))
    asked["own"] = "audit_by_owner"
    whole = "Seq Scan on jobs_auditentry"
    found = {query: (index in seen[query], whole in seen[query]) for query, index in asked.items()}
    assert found == dict.fromkeys(asked, (True, False)), seen


def test_no_pair_of_filters_scans_the_table(
    rare: User, owner: User, client: APIClient, staff: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyset, "STEP_ROWS", 20)
    monkeypatch.setattr(keyset, "PAGE_BUDGET_SECONDS", 0)
    examples: dict[str, tuple[str, ...]] = {
        "actor": ("often", "rare"),
        "action": ("job.edited", "rare.made"),
        "object_type": ("job", "rare"),
        "object_id": ("17", "3"),
        "owner": (owner.get_username(), rare.get_username()),
        "from": ("2024-06-10T00:00:00Z", "2030-01-01T00:00:00Z"),
        "to": ("2024-06-10T00:00:00Z", "2024-06-01T00:00:00Z"),
    }
    assert set(examples) == set(AuditEntryQuery().fields) - {"limit", "cursor"}
    wrong = {}
    for (one, firsts), (other, seconds) in combinations(examples.items(), 2):
        for first, second in product(firsts, seconds):
            if (one, other) == ("from", "to") and first > second:
                continue  # rejected
            query = f"?{one}={first}&{other}={second}&limit=5"
            for asker in (staff, client) if (first, second) == (firsts[0], seconds[0]) else (staff,):
                data = "\n".join(_plans(asker, query))
                read = sum(int(number) for number in re.findall(r"Rows Removed by Filter: (\d+)", data))
                if "Seq Scan on jobs_auditentry" in data or read > 500:
                    wrong[query, asker is staff] = data
    assert not wrong, "\n".join(f"{query}\n{data}" for query, data in wrong.items())


def test_pagination_finds_matches_of_two_filters(rare: User, staff: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyset, "STEP_ROWS", 20)
    monkeypatch.setattr(keyset, "PAGE_BUDGET_SECONDS", 0)
    found: list[str] = []
    following: str | None = f"{API}/audit?actor=often&action=job.seldom&limit=5"
    pages = 0
    while following is not None:
        answer = staff.get(following).json()
        found += [entry["object_id"] for entry in answer["results"]]
        following, pages = answer["next"], pages + 1
    assert found == [str(n) for n in range(20_000, 0, -1) if n % 2000 == 7]
    assert pages > 1


def test_pages_do_not_reveal_entries_of_others(rare: User, client: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyset, "STEP_ROWS", 20)
    monkeypatch.setattr(keyset, "PAGE_BUDGET_SECONDS", 0)
    asker = client_of(rare)
    for query in ("actor=often", "action=job.created", "object_type=job", "object_id=17", "actor=nobody"):
        answer = asker.get(f"{API}/audit?{query}&limit=1").json()
        assert answer["next"] is None or asker.get(answer["next"]).json()["next"] is None, query


@pytest.fixture
def rare(owner: User) -> User:
    """A user with five old entries among twenty thousand others."""
    rare = make_user()
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO jobs_auditentry (id, at, actor_name, token_name, via, action, object_type, object_id,
                                         object_name, owner_id, before, after)
            SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, now(),
                   CASE WHEN n < 5 THEN 'rare' WHEN n %% 2 = 0 THEN 'other' ELSE 'often' END, '', 'api',
                   CASE WHEN n < 5 THEN 'rare.made' WHEN n %% 2000 = 7 THEN 'job.seldom'
                        WHEN n %% 2 = 0 THEN 'job.edited' ELSE 'job.created' END,
                   CASE WHEN n < 5 THEN 'rare' ELSE 'job' END, n::text, '',
                   CASE WHEN n < 5 THEN %s ELSE %s END, '{}', '{}'
              FROM generate_series(1, 20000) n
            """,
            [rare.pk, owner.pk],
        )
        cursor.execute("ANALYZE jobs_auditentry")
    return rare


def _plans(client: APIClient, query: str) -> Iterator[str]:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(f"{API}/audit{query}").status_code == 200
    with connection.cursor() as cursor:
        for text in [each["sql"] for each in queries]:
            if "SAVEPOINT" in text or "set_config" in text:
                cursor.execute(text)
            elif 'FROM "jobs_auditentry"' in text:
                cursor.execute("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) " + text)
                yield from (text, *(row[0] for row in cursor.fetchall()))


def test_query_count_is_independent_of_page_size(client: APIClient, owner: User) -> None:
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
