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
from tests.factories import make_job, make_schedule, make_worker

pytestmark = pytest.mark.django_db

HOLD = {"execution_id": uuid4(), "attempt": 1, "worker_id": uuid4(), "incarnation": 1}
IDS = [uuid4(), uuid4()]
ENDING = {
    "sources": sources(Move.SUCCEED),
    "target": target(Move.SUCCEED),
    "terminal": True,
    "reason": "exit",
    "attempt_reason": "exit",
    "tries": 1,
    "retry_seconds": 0.0,
    "error": "",
    "log_truncated": False,
    **dict.fromkeys(("exit_code", "signal", "result", "cpu_seconds", "peak_memory_bytes", "peak_disk_bytes")),
}
CHUNKS = {"sequences": [0], "streams": ["stdout"], "times": [datetime.now(UTC)], "data": [b"x"]}
READY: dict[str, Any] = {
    "pool": "default", "limit": 500, "reserve_seconds": 60.0, "full_owners": [1], "default_executions": 0,
}  # fmt: skip
STATEMENTS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("take_due_schedules", {"limit": 500}, {"schedule_due"}),
    ("next_due", {}, {"schedule_due", "execution_backing_off"}),
    ("wake_backed_off", {"limit": 500}, {"execution_backing_off"}),
    (
        "ready_executions",
        READY,
        {"execution_active", "execution_unfinished_by_job"},
    ),
    ("limited_owners", {"default_executions": 1}, {"execution_active"}),
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
        "lock_lost",
        {"worker_ids": IDS, "keep_incarnations": [1, None], "listed": IDS, "unlisted_seconds": 30.0},
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
    ("lose_held", {"ids": IDS, "max_times_lost": 5, "reason": "lost"}, {"jobs_execution_pkey", "attempt_number_once"}),
    ("follow_queue", {"ids": IDS}, {"jobs_execution_pkey"}),
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
        "end_attempt",
        HOLD | ENDING | {"alone": True},
        {"jobs_execution_pkey", "attempt_number_once", "jobs_schedule_pkey"},
    ),
    ("end_attempt", HOLD | ENDING | {"alone": False}, {"jobs_execution_pkey", "attempt_number_once"}),
    ("append_log", HOLD | CHUNKS, {"jobs_execution_pkey"}),
    (
        "append_bounded_log",
        HOLD | CHUNKS | {"max_bytes": 1, "max_chunks": 1},
        {"jobs_execution_pkey", "attempt_number_once"},
    ),
    (
        "announce_output",
        HOLD | {"announced": "0" * 64, "size": 1, "max_files": 1, "max_bytes": 1},
        {"jobs_execution_pkey", "attempt_number_once"},
    ),
    ("report_progress", HOLD | {"percent": 5.0, "message": "x"}, {"jobs_execution_pkey"}),
]


TABLES = ", ".join(
    f"jobs_{name}" for name in ("job", "jobversion", "schedule", "dependency", "worker", "attempt", "execution")
)
# A row like the one that there is, but for what is given.
CLONE = "INSERT INTO jobs_{0} SELECT (jsonb_populate_record(o, {1})).* FROM jobs_{0} o, fresh"
CLONES = {
    "job": "jsonb_build_object('id', fresh.job_id, 'name', n, 'current_version_id', fresh.version_id)",
    "jobversion": "jsonb_build_object('id', fresh.version_id, 'job_id', fresh.job_id)",
    "schedule": "jsonb_build_object('id', uuidv7(), 'job_id', fresh.job_id)",
    "worker": "jsonb_build_object('id', uuidv7(), 'name', n)",
}
CHAIN = """
INSERT INTO jobs_dependency (id, job_id, upstream_id, condition)
SELECT uuidv7(), f.job_id, u.job_id, 'success' FROM fresh f JOIN fresh u ON u.n = f.n - 1
"""
ATTEMPTS = """
INSERT INTO jobs_attempt (id, execution_id, number, worker_id, incarnation, placed_at, claimed_at, error, log_truncated)
SELECT uuidv7(), e.id, 1, w.id, 1, now(), now(), '', false
  FROM jobs_execution e, (SELECT id FROM jobs_worker LIMIT 1) w
"""


@pytest.fixture(autouse=True)
def open_shop() -> None:
    """Jobs, schedules, dependencies and workers by the hundred.

    In tables that begin anew, until the end of the transaction: what other tests left in them, and when autovacuum
    happened to look at it, would else decide in which order they are joined.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {TABLES} CASCADE")
        make_schedule()
        make_worker()
        cursor.execute(
            "CREATE TEMPORARY TABLE fresh ON COMMIT DROP AS"
            " SELECT n, uuidv7() AS job_id, uuidv7() AS version_id FROM generate_series(1, 300) n"
        )
        for table, given in CLONES.items():
            cursor.execute(CLONE.format(table, given))
        cursor.execute(CHAIN)
    tell_planner()


def tell_planner() -> None:
    with connection.cursor() as cursor:
        cursor.execute(ATTEMPTS)
        cursor.execute(f"ANALYZE {TABLES}, jobs_queue")


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
    tell_planner()


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
    tell_planner()
    for name, parameters, indexes in BY_KEY:
        shown = plan(name, {k: worker.worker_id if k == "worker_id" else v for k, v in parameters.items()})
        assert indexes <= used(shown), f"{name}: {shown}"


def test_due_schedules_are_found_by_a_condition_on_the_index() -> None:
    assert "Index Cond: (next_fire_at <= statement_timestamp())" in plan("take_due_schedules", {"limit": 1})


def test_what_an_owner_keeps_is_summed_up_from_the_indexes_alone() -> None:
    shown = plan("storage_use", {"owner_ids": [1, 2], "default_mb": 1})
    alone = set(re.findall(r"Index Only Scan using (\w+)", shown))
    assert alone == {"artifact_by_owner", "output_bytes_by_owner", "log_bytes_by_owner"}, shown
    assert "Seq Scan on jobs_" not in shown, shown


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
    shown = plan("ready_executions", READY, sorting=False)
    assert "execution_ready" in used(shown), shown
