"""Every list of the API reads one page of visible rows, however many rows others have.

Jobs, executions and the audit, which are filtered by many things, have tests of their own.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from jobs.api.urls import urlpatterns
from tests.integration.api.conftest import API, client_of
from tests.support.factories import make_execution, make_job, make_user, make_worker

pytestmark = pytest.mark.django_db
# 20 rows of a reader, older than all others; the planner assumes they are evenly spread.
FILLED = {
    "jobs_artifact": ("sha256, size, created_at", "md5(n::text) || md5(n::text), 1, now()"),
    "jobs_calendar": ("name, dates, created_at, updated_at", "n::text, '{}', now(), now()"),
    "jobs_secret": ("name, sealed, version, created_at, updated_at", "n::text, '', 1, now(), now()"),
    "jobs_apitoken": ("name, digest, scope, created_at", "n::text, md5(n::text), 'read', now()"),
    "jobs_webhook": (
        "name, url, host, events, sealed, enabled, disabled_reason, created_at, updated_at",
        "n::text, '', '', '{failed}', '', true, '', now(), now()",
    ),
}
# Rows of a reader.
WEBHOOK = "01900000-0000-7000-8000-000000000001"
OF_OWNERS = {"/artifacts", "/calendars", "/secrets", "/tokens", "/webhooks"}
OF_ONE = {"/webhooks/{webhook}/deliveries", "/executions/{execution}/attempts", "/executions/{execution}/events"}
# Not covered: workers, queues and teams are few.
FEW_ROWS = {"/workers", "/queues", "/teams", "/executions/{execution}/outputs"}
ELSEWHERE = {
    "/jobs", "/executions", "/audit", "/dead-letters", "/jobs/{job}/backfills", "/executions/{execution}/logs",
    "/audit/attempts", "/audit/firings", "/workers/terms", "/docs",
}  # fmt: skip


@pytest.fixture
def reader(owner: User) -> User:
    reader = make_user()
    with connection.cursor() as cursor:
        for table, (columns, values) in FILLED.items():
            cursor.execute(
                f"INSERT INTO {table} (id, owner_id, {columns})"  # noqa: S608 - all of it is written above
                f" SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,"
                f" CASE WHEN n <= 20 THEN %s ELSE %s END, {values} FROM generate_series(1, 5000) n",
                [reader.pk, owner.pk],
            )
            _tidy(table)
    return reader


def _tidy(table: str) -> None:
    """Vacuum the tables: rows rolled back by other tests would still be in the indexes and count."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', '0', true)")
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")
        cursor.execute(f"REINDEX TABLE {table}")
        cursor.execute(f"ANALYZE {table}")


def read_most(client: APIClient, path: str) -> tuple[int, str]:
    """Return the maximum number of rows that any plan node of a page's queries reads or discards."""
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(f"{API}{path}")
    assert answer.status_code == 200, answer.content
    data: list[str] = []
    with connection.cursor() as cursor:
        for text in [each["sql"] for each in queries]:
            if "SAVEPOINT" in text or "set_config" in text:
                cursor.execute(text)
            elif text.startswith("SELECT"):
                cursor.execute("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) " + text)
                data += [text, *(row[0] for row in cursor.fetchall())]
    plan = "\n".join(data)
    touched = [int(float(rows)) * int(loops) for rows, loops in re.findall(r"actual rows=([\d.]+) loops=(\d+)", plan)]
    return max([*touched, *map(int, re.findall(r"Rows Removed by Filter: (\d+)", plan))], default=0), plan


def test_owner_lists_read_one_page(reader: User) -> None:
    member, staff = client_of(reader), client_of(make_user(is_staff=True))
    wrong = {}
    for path in sorted(OF_OWNERS):
        for client in (member, staff):
            most, plan = read_most(client, f"{path}?limit=5")
            if most > 10:
                wrong[path, client is staff] = f"{most}\n{plan}"
    assert not wrong, "\n".join(f"{case}: {data}" for case, data in wrong.items())


def _fill(state: str) -> None:
    """Create three deliveries of that state and thousands of newer ones of another."""
    other = "failed" if state != "failed" else "delivered"
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_webhookdelivery (id, webhook_id, event, state, attempts, tries_left, next_try_at, error,"
            " response, created_at, ended_at)"
            " SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, %s, 'ping', state, 0, 9, now(),"
            " '', '', now(), CASE WHEN state <> 'pending' THEN now() END FROM generate_series(1, 5000) n,"
            " LATERAL (SELECT CASE WHEN n <= 3 THEN %s ELSE %s END) s (state)",
            [WEBHOOK, state, other],
        )
    _tidy("jobs_webhookdelivery")


@pytest.mark.parametrize("state", ["delivered", "pending", "failed"])
def test_rare_delivery_state_is_found_by_index(reader: User, state: str) -> None:
    _fill(state)
    client = client_of(reader)
    most, plan = read_most(client, f"/webhooks/{WEBHOOK}/deliveries?state={state}&limit=5")
    assert most <= 600, plan
    found, following = 0, f"{API}/webhooks/{WEBHOOK}/deliveries?state={state}&limit=100"
    while following:
        answer: dict[str, Any] = client.get(following).json()
        found, following = found + len(answer["results"]), answer["next"]
    assert found == 3


def test_attempts_and_events_are_bounded(owner: User, client: APIClient) -> None:
    execution = make_execution(job=make_job(owner=owner))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_attempt (id, execution_id, number, worker_id, incarnation, placed_at, claimed_at, error,"
            " log_truncated) SELECT gen_random_uuid(), %s, n, %s, 1, now(), now(), '', false"
            " FROM generate_series(1, 1100) n",
            [execution.id, make_worker().worker_id],
        )
    numbers = [each["number"] for each in client.get(f"{API}/executions/{execution.id}/attempts").json()["results"]]
    assert numbers == list(range(101, 1101))


def test_every_list_has_a_plan_test() -> None:
    """A GET route that ends in a plural is a list; a new one must be added here."""
    lists = {
        "/" + re.sub(r"<uuid:(\w+)_id>", r"{\1}", str(route.pattern))
        for route in urlpatterns
        if str(route.pattern).endswith(("s", "audit")) and hasattr(getattr(route.callback, "view_class", None), "get")
    }
    assert lists == OF_OWNERS | OF_ONE | FEW_ROWS | ELSEWHERE
