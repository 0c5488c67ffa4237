"""Every list uses indexes for every filter and order: no statement scans a large table.

The cases are generated from the existing filters and orders; a filter without an example fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Q
from django.test.utils import CaptureQueriesContext

from benchmarks.catalogue import TABLES, Catalogue, make_catalogue
from jobs.api.resources.definitions.jobs import JobQuery
from jobs.api.resources.executions.executions import ExecutionQuery
from jobs.db import keyset
from jobs.db.keyset import Listing, read_keyset_page
from jobs.definitions import job_list
from jobs.definitions.job_list import JobFilters, list_jobs
from jobs.definitions.job_status import JobStatus
from jobs.domain.states import State
from jobs.execution import execution_list
from jobs.execution.execution_list import ExecutionFilters, list_executions
from jobs.models import DeadLetter, Job, Membership, Team
from tests.support.factories import make_user

pytestmark = pytest.mark.django_db

SEQ_SCAN = re.compile(rf"Seq Scan on (?:{'|'.join(TABLES)})\b.*")
NOW = datetime.now(UTC)
HOUR_AGO = NOW - timedelta(hours=1)
JOB_EXAMPLES: dict[str, list[Any]] = {
    "status": [status.value for status in JobStatus],
    "queue": ["rare", "default"],
    "priority": [9, 3],
    "owner": ["few", "many"],
    "team": ["small"],
    "search": ["zebra", "report", "e"],
    "name": ["zebra 7", "nobody"],
    "deleted": [True],
}
EXECUTION_EXAMPLES: dict[str, list[Any]] = {
    "job_id": [],  # filled by the fixture
    "worker_id": [],
    "status": [state.value for state in State],
    "queue": ["rare", "default"],
    "owner": ["few", "many"],
    "team": ["small"],
    "retry_of": [uuid4()],
    "scheduled_from": [HOUR_AGO],
    "scheduled_to": [HOUR_AGO],
    "ended_from": [HOUR_AGO],
    "ended_to": [HOUR_AGO],
    "dead_letter": DeadLetter.values,
}
# Indexes that particular lists must use.
OWN_INDEXES: list[tuple[str, str, dict[str, Any], str]] = [
    ("jobs", "name", {}, "job_by_name"),
    ("jobs", "next_fire", {}, "schedule_due"),
    ("jobs", "-created", {"deleted": True}, "job_deleted"),
    ("jobs", "-created", {"status": "paused"}, "job_stopped"),
    ("jobs", "-created", {"status": "running"}, "execution_unfinished_of_job"),
    ("jobs", "-created", {"status": "failed"}, "execution_unsuccessful_by_job"),
    ("jobs", "-created", {"queue": "rare"}, "job_version_by_queue"),
    ("jobs", "-created", {"priority": 9}, "job_version_by_priority"),
    ("jobs", "-created", {"search": "zebra"}, "job_search"),
    ("jobs", "-created", {"name": "nobody"}, "job_by_name"),
    ("jobs", "-created", {"name": "nobody", "deleted": True}, "job_search"),
    ("jobs", "-created", {"name": "nobody", "owner": "few"}, "job_by_owner_and_name"),
    ("jobs", "-created", {"owner": "few"}, "job_live_by_owner"),
    ("jobs", "name", {"owner": "few"}, "job_by_owner_and_name"),
    ("jobs", "-created", {"team": "small"}, "job_by_team"),
    ("jobs", "name", {"team": "small"}, "job_by_team_and_name"),
    ("executions", "-created", {"team": "small"}, "execution_list_by_job"),
    ("executions", "-created", {"owner": "few"}, "execution_list_by_job"),
    ("executions", "-created", {"queue": "rare"}, "execution_list_by_job"),
    ("executions", "-created", {"owner": "many", "status": "timed_out"}, "job_live_by_owner"),
    ("executions", "-created", {"owner": "many", "status": "timed_out"}, "job_deleted"),
    ("executions", "-ended_at", {"owner": "few"}, "execution_list_by_job"),
    ("executions", "-ended_at", {}, "execution_ended"),
    ("executions", "-created", {"status": "running"}, "execution_held"),
    ("executions", "-created", {"status": "timed_out"}, "execution_unsuccessful"),
    ("executions", "-created", {"dead_letter": "open"}, "execution_dead_letters"),
    ("executions", "-created", {"retry_of": uuid4()}, "execution_retried_once"),
    ("executions", "-created", {"scheduled_to": HOUR_AGO}, "execution_drawn_out"),
    ("executions", "-created", {"ended_from": HOUR_AGO}, "execution_drawn_out"),
]


# Conditions of one index that must not filter the rows of another one.
FILTERED = re.compile(r"Filter: .*(?:ended_at - fired_at|fired_at - scheduled_for)")


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> Catalogue:
    """Create tables that exceed a page's limits as much as a million jobs exceed the real ones."""
    monkeypatch.setattr(keyset, "STEP_ROWS", 20)
    monkeypatch.setattr(keyset, "PAGE_BUDGET_SECONDS", 0)
    monkeypatch.setattr(keyset, "SEARCH_TIMEOUT_SECONDS", 5)
    with connection.cursor() as cursor:
        # A rollback leaves dead rows in tables and indexes, so plans would depend on the tests that ran before.
        cursor.execute(f"TRUNCATE {', '.join(TABLES)} CASCADE")
    made = make_catalogue(20_000, 60_000)
    # Some jobs of another owner, and all of hers.
    small = Team.objects.create(name="small")
    Membership.objects.create(team=small, user=made.few)
    shared = Job.objects.filter(owner=made.many).order_by("name").values("id")[:200]
    Job.objects.filter(Q(id__in=shared) | Q(owner=made.few)).update(team=small)
    with connection.cursor() as cursor:
        # As vacuum does; before that, a search reads new rows one by one.
        cursor.execute("SELECT gin_clean_pending_list('job_search')")
        cursor.execute(f"ANALYZE {', '.join(TABLES)}, jobs_queue, jobs_worker, auth_user")
    EXECUTION_EXAMPLES["worker_id"] = [made.worker_id]
    EXECUTION_EXAMPLES["job_id"] = list(Job.objects.filter(owner=made.few).values_list("id", flat=True)[:1])
    return made


def listing_of(kind: str, user: User, filters: dict[str, Any], ordering: str) -> Listing:
    if kind == "jobs":
        return list_jobs(user, JobFilters(**filters), ordering)
    return list_executions(user, ExecutionFilters(**filters), ordering)


class Plans:
    """Query plans, cached by statement and settings."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}

    def of(self, build: Callable[[], Listing]) -> str:
        """Return the plans of all statements that the first page executes, with their settings."""
        with CaptureQueriesContext(connection) as queries:
            read_keyset_page(build(), None, 5)
        settings, statements = "", []
        for query in queries.captured_queries:
            text = query["sql"]
            if "SAVEPOINT" in text or "set_config" in text:
                settings = text if "set_config" in text else ""
            else:
                statements.append((settings, text))
        with connection.cursor() as cursor:
            for settings, text in statements:
                if (settings, text) not in self._known:
                    with transaction.atomic():
                        if settings:
                            cursor.execute(settings)
                        cursor.execute(f"EXPLAIN {text}")
                        self._known[settings, text] = "\n".join([text, *(line for (line,) in cursor.fetchall())])
                        transaction.set_rollback(True)
        shown = "\n".join(self._known[each] for each in statements)
        assert len(queries) < 30, shown
        return shown


def combined(examples: dict[str, list[Any]], orders: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each example in each order, and the first examples of each pair of filters."""
    for ordering in orders:
        yield ordering, {}
        for name, values in examples.items():
            for value in values:
                if not (name == "deleted" and not ordering.endswith("created")):
                    yield ordering, {name: value}
    for (one, first), (other, second) in combinations(examples.items(), 2):
        yield orders[0], {one: first[0], other: second[0]}


def test_every_filter_has_examples() -> None:
    page = {"limit", "cursor", "ordering"}
    assert set(JOB_EXAMPLES) == {each.name for each in fields(JobFilters)} == set(JobQuery().fields) - page
    offered = set(ExecutionQuery().fields) - page
    assert set(EXECUTION_EXAMPLES) == {each.name for each in fields(ExecutionFilters)} == offered | {"dead_letter"}


def test_no_list_scans_a_large_table(catalogue: Catalogue) -> None:
    staff, plans, wrong, tried = make_user(is_staff=True), Plans(), {}, 0
    for kind, examples, orders in (
        ("jobs", JOB_EXAMPLES, [*job_list.ORDERS]),
        ("executions", EXECUTION_EXAMPLES, [*execution_list.ORDERS]),
    ):
        for ordering, filters in combined(examples, orders):
            for user in (staff, catalogue.few):
                shown = plans.of(lambda: listing_of(kind, user, filters, ordering))  # noqa: B023 - called at once
                tried += 1
                if scans := SEQ_SCAN.findall(shown):
                    wrong[kind, user.username, ordering, *filters.items()] = scans
    assert not wrong, "\n".join(f"{case}: {scans}" for case, scans in wrong.items())
    assert tried > 300
    for kind, ordering, filters, index in OWN_INDEXES:
        shown = plans.of(lambda: listing_of(kind, staff, filters, ordering))  # noqa: B023
        if not re.search(rf"(?:using|Index Scan on) {index}\b", shown):
            wrong[kind, ordering, *filters.items()] = [f"{index} is not in:", shown]
        if filtered := FILTERED.findall(shown):
            wrong[kind, ordering, *filters.items()] = filtered
    assert not wrong, "\n".join(f"{case}: {scans}" for case, scans in wrong.items())
