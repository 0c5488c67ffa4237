"""The hot statements stand on the indexes that their headers name, whatever the size of the table."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from jobs import conf, sql
from jobs.models import Execution, Trigger
from jobs.services.transitions import NewExecution, create_executions
from jobs.states import Move, sources, target
from tests.factories import make_job, make_worker

pytestmark = pytest.mark.django_db

HOLD = {"execution_id": uuid4(), "attempt": 1, "worker_id": uuid4(), "incarnation": 1}
IDS = [uuid4(), uuid4()]
STATEMENTS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("take_due_schedules", {"limit": 500}, {"schedule_due"}),
    ("next_due", {}, {"schedule_due", "execution_backing_off"}),
    ("wake_backed_off", {"limit": 500}, {"execution_backing_off"}),
    (
        "ready_executions",
        {"pool": "default", "limit": 500, "reserve_seconds": 60.0},
        {"execution_active", "execution_unfinished_by_job"},
    ),
    ("free_capacity", {"pool": "default", "full_ones": False}, {"execution_active"}),
    ("take_unclaimed", {"limit": 500, "republish_seconds": 2.0}, {"execution_active"}),
    ("suspect_workers", {"unclaimed_seconds": 30.0}, {"execution_active"}),
    (
        "unfinished_of_jobs",
        {"job_ids": IDS, "cancelling": IDS, "enough": 1000, "most": 1000},
        {"execution_unfinished_by_job"},
    ),
    (
        "expire_overdue",
        {"limit": 500, "sources": sources(Move.EXPIRE), "target": target(Move.EXPIRE)},
        {"execution_overdue"},
    ),
    ("return_unclaimed", {"limit": 500, "unclaimed_seconds": 30.0}, {"execution_active"}),
    ("orphaned_workers", {}, {"execution_active"}),
    (
        "placed_work",
        {"worker_id": uuid4(), "incarnation": 1, "listed": IDS, "limit": 100},
        {"execution_active"},
    ),
    (
        "lose_held",
        {
            "worker_ids": IDS,
            "keep_incarnations": [1, None],
            "max_times_lost": 5,
            "listed": IDS,
            "unlisted_seconds": 30.0,
            "reason": "lost",
        },
        {"execution_active"},
    ),
    (
        "release_queued",
        {"limit": 500, "sources": ["queued"], "target": target(Move.RELEASE)},
        {"execution_active"},
    ),
]
BY_KEY: list[tuple[str, dict[str, Any], set[str]]] = [
    ("missing_dependents", {"job_ids": IDS, "run_ids": IDS}, {"execution_once_per_run"}),
    ("waiting_dependents", {"job_ids": IDS, "run_ids": IDS}, {"execution_once_per_run", "execution_unfinished_by_job"}),
    ("lock_dependents", {"ids": IDS}, {"execution_blocked"}),
    ("judge_dependents", {"ids": IDS}, {"execution_once_per_run"}),
    ("judge_scheduled", {"ids": IDS}, {"execution_once_per_instant", "execution_list_by_job"}),
    ("lock_held", HOLD, {"jobs_execution_pkey"}),
    (
        "claim_execution",
        HOLD | {"attempt_id": uuid4(), "sources": sources(Move.CLAIM), "target": target(Move.CLAIM)},
        {"jobs_execution_pkey", "jobs_worker_pkey"},
    ),
    (
        "start_execution",
        HOLD | {"sources": sources(Move.START), "target": target(Move.START), "receipt": "{}"},
        {"jobs_execution_pkey", "attempt_number_once"},
    ),
    (
        "append_log",
        HOLD | {"sequences": [0], "streams": ["stdout"], "times": [datetime.now(UTC)], "data": [b"x"]},
        {"jobs_execution_pkey"},
    ),
]


@pytest.fixture
def ordinary_table() -> None:
    """Many ended, some ready, a few active, and the planner knows: what it would choose in a shop that is open."""
    job, worker, now = make_job(), make_worker(), datetime.now(UTC)
    create_executions([NewExecution(job.id, Trigger.MANUAL) for _ in range(2000)])
    ids = list(Execution.objects.values_list("id", flat=True))
    Execution.objects.filter(id__in=ids[300:]).update(state="succeeded", ended_at=now)
    Execution.objects.filter(id__in=ids[:10]).update(
        state="queued", worker_id=worker.worker_id, incarnation=1, attempt=1, placed_at=now
    )
    Execution.objects.filter(id__in=ids[10:20]).update(state="backing_off", retry_at=now)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobs_execution")


def plan(name: str, parameters: dict[str, Any], *, sorting: bool = True) -> str:
    with connection.cursor() as cursor:
        # The tables are small: only the possibility of each index is asked for, not its price.
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        cursor.execute(f"SET LOCAL enable_sort = {'on' if sorting else 'off'}")
        cursor.execute(f"EXPLAIN {sql.statement(name)}", parameters)
        return "\n".join(line for (line,) in cursor.fetchall())


def used(shown: str) -> set[str]:
    return set(re.findall(r"Scan(?: Backward)? using (\w+)", shown))


@pytest.mark.parametrize(("name", "parameters", "indexes"), STATEMENTS, ids=[s[0] for s in STATEMENTS])
def test_a_hot_statement_uses_its_indexes(
    ordinary_table: None, name: str, parameters: dict[str, Any], indexes: set[str]
) -> None:
    shown = plan(name, parameters)
    assert indexes <= used(shown), shown
    assert "Seq Scan on jobs_execution " not in shown, shown
    assert "Seq Scan on jobs_schedule" not in shown, shown


def test_a_single_execution_is_found_by_its_key() -> None:
    job = make_job()
    create_executions([NewExecution(job.id, Trigger.MANUAL) for _ in range(2000)])
    worker = make_worker()
    now = datetime.now(UTC)
    Execution.objects.update(
        state="running",
        worker_id=worker.worker_id,
        incarnation=1,
        attempt=1,
        placed_at=now,
        claimed_at=now,
        started_at=now,
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE jobs_execution")
    for name, parameters, indexes in BY_KEY:
        shown = plan(name, {k: worker.worker_id if k == "worker_id" else v for k, v in parameters.items()})
        assert indexes <= used(shown), f"{name}: {shown}"


def test_due_schedules_are_found_by_a_condition_on_the_index() -> None:
    assert "Index Cond: (next_fire_at <= statement_timestamp())" in plan("take_due_schedules", {"limit": 1})


def test_every_index_that_a_header_names_exists() -> None:
    named = set()
    for file in sql.HERE.glob("*.sql"):
        header = "".join(line for line in file.read_text().splitlines(keepends=True) if line.startswith("--"))
        for line in re.findall(r"(?:Index(?:es)?|Keys?): ([^.\n]*)", header):
            named |= set(re.findall(r"\b(?:execution|schedule|dependency)_\w+", line))
    assert named, "the headers name none"
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname FROM pg_indexes WHERE schemaname = 'public'")
        existing = {name for (name,) in cursor.fetchall()}
    assert named <= existing


def test_a_batch_of_firing_is_bounded() -> None:
    assert conf.FIRE_BATCH_SCHEDULES * conf.FIRE_BATCH_INSTANTS_EACH <= 100_000


def test_what_waits_can_be_walked_in_its_order(ordinary_table: None) -> None:
    shown = plan("ready_executions", {"pool": "default", "limit": 500, "reserve_seconds": 60.0}, sorting=False)
    assert "execution_ready" in used(shown), shown
