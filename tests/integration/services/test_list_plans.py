"""Every kind of list stands on its index: no statement of a page reads a table from end to end."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from benchmarks.population import FRESH, HISTORY, JOBS, SCHEDULES, VERSIONS, ZONES, Needs
from jobs.models import Artifact, Execution, Job, JobVersion, Queue
from jobs.querysets import walking
from jobs.querysets.walking import Listing, walk_page
from jobs.services.execution_lists import ExecutionFilters, list_executions
from jobs.services.job_lists import JobFilters, list_jobs
from tests.factories import make_user, make_worker

pytestmark = pytest.mark.django_db

MANY = 3000
TABLES = "jobs_job, jobs_jobversion, jobs_schedule, jobs_worker, jobs_attempt, jobs_execution"
WHOLE = re.compile(r"Seq Scan on jobs_(?:job|jobversion|schedule|attempt|execution)\b")


@pytest.fixture(autouse=True)
def large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many times what a page may look at, in tables that begin anew, with a few of everything that is rare."""
    monkeypatch.setattr(walking, "BUDGET", 20)
    owner = make_user(username="many")
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {TABLES} CASCADE")
        make_worker()
        artifact = Artifact.objects.create(owner=owner, sha256="0" * 64, size=1)
        cursor.execute(FRESH, {"first": 1, "last": MANY, "zones": ZONES})
        cursor.execute(JOBS, {"owner": owner.pk})
        needs = Needs()
        cursor.execute(
            VERSIONS,
            {
                "artifact": artifact.pk,
                "runtime": needs.runtime,
                "cpu": needs.cpu,
                "memory_mb": needs.memory_mb,
                "disk_mb": needs.disk_mb,
            },
        )
        cursor.execute(SCHEDULES)
        cursor.execute(HISTORY, {"first": 1, "last": 2 * MANY, "schedules": MANY})
        few = list(Job.objects.order_by("id").values_list("id", flat=True)[: 10 * 97 : 97])
        Job.objects.filter(id__in=few[:5]).update(state="paused", paused_at=datetime.now(UTC))
        Job.objects.filter(id__in=few[5:]).update(owner=make_user(username="few"))
        JobVersion.objects.filter(job_id__in=few).update(queue=Queue.objects.create(name="rare"), priority=9)
        # The newest ones are gone again, and many wait: what is asked for is behind them.
        gone = Job.objects.order_by("-id").values("id")[: MANY // 3]
        Job.objects.filter(id__in=gone).update(state="cancelled", deleted_at=datetime.now(UTC))
        waiting = Execution.objects.order_by("-id").values("id")[: MANY // 3]
        Execution.objects.filter(id__in=waiting).update(
            state="ready", ended_at=None, reason=None, worker=None, incarnation=None
        )
        executions = list(Execution.objects.order_by("id").values_list("id", flat=True)[: 40 * 97 : 97])
        Execution.objects.filter(id__in=executions[:20]).update(state="failed", dead_letter="open")
        Execution.objects.filter(id__in=executions[20:]).update(state="running", ended_at=None, reason=None)
        # As vacuum does; until then a search reads what is new one by one.
        cursor.execute("SELECT gin_clean_pending_list('job_search')")
        cursor.execute(f"ANALYZE {TABLES}, jobs_queue")


def plans(listing: Listing) -> str:
    with CaptureQueriesContext(connection) as queries:
        walk_page(listing, None, 5)
    shown = []
    with connection.cursor() as cursor:
        # The tables are large beside a page only: an index is asked for where there is one.
        cursor.execute("SET LOCAL enable_seqscan = off")
        for query in queries.captured_queries:
            if query["sql"].lstrip("- \n").startswith(("SELECT", "execution_lists")):
                cursor.execute("EXPLAIN " + query["sql"])
                shown += [query["sql"], *(line for (line,) in cursor.fetchall())]
    assert len(queries) <= 7, "\n".join(shown)
    return "\n".join(shown)


JOB_LISTS: list[tuple[str, str, dict[str, Any], set[str]]] = [
    ("staff", "-created", {}, {"job_live"}),
    ("many", "-created", {}, set()),
    ("staff", "name", {}, {"job_by_name"}),
    ("many", "-name", {}, {"job_by_owner_and_name"}),
    ("staff", "next_fire", {}, {"schedule_due"}),
    ("staff", "-created", {"deleted": True}, {"job_deleted"}),
    ("staff", "-created", {"status": "paused"}, {"job_stopped"}),
    ("staff", "-created", {"status": "running"}, {"execution_active"}),
    ("staff", "-created", {"status": "failed"}, {"execution_unsuccessful_by_job"}),
    ("staff", "-created", {"status": "succeeded"}, {"execution_list_by_job"}),
    ("staff", "-created", {"queue": "rare"}, {"job_version_by_queue"}),
    ("staff", "-created", {"priority": 9}, {"job_version_by_priority"}),
    ("staff", "-created", {"search": "b 1234"}, {"job_search"}),
    ("many", "name", {"search": "b 1234"}, {"job_search"}),
]
EXECUTION_LISTS: list[tuple[str, str, dict[str, Any], set[str]]] = [
    ("staff", "-created", {}, {"jobs_execution_pkey"}),
    ("few", "-created", {}, {"execution_list_by_job"}),
    ("staff", "-ended_at", {}, {"execution_ended"}),
    ("staff", "-created", {"status": "running"}, {"execution_active"}),
    ("staff", "-created", {"status": "failed"}, {"execution_unsuccessful"}),
    ("staff", "-created", {"worker_id": uuid4()}, {"attempt_by_worker", "execution_active"}),
    ("staff", "-created", {"dead_letter": "open"}, {"execution_dead_letters"}),
    ("staff", "-created", {"retry_of": uuid4()}, {"execution_retried_once"}),
    ("staff", "-created", {"ended_to": datetime(2020, 1, 1, tzinfo=UTC)}, {"execution_ended"}),
]


def asking(name: str) -> User:
    return make_user(is_staff=True) if name == "staff" else User.objects.get(username=name)


@pytest.mark.parametrize("kind", ["jobs", "executions"])
def test_lists_use_their_indexes(kind: str) -> None:
    wrong = []
    for who, ordering, filters, indexes in JOB_LISTS if kind == "jobs" else EXECUTION_LISTS:
        user = asking(who)
        shown = plans(
            list_jobs(user, JobFilters(**filters), ordering)
            if kind == "jobs"
            else list_executions(user, ExecutionFilters(**filters), ordering)
        )
        used = set(re.findall(r"(?:using|Index Scan on) (\w+)", shown))
        if not indexes <= used or WHOLE.search(shown):
            wrong.append(f"{who} {ordering} {filters}: wants {indexes}, uses {used}\n{shown}")
    assert not wrong, "\n\n".join(wrong)
