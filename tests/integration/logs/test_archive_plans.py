"""Query plans of archiving and retention: indexes find the few unsettled logs among many."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from jobs.models.ids import first_id
from tests.integration.dispatch.test_query_plans import plan, used
from tests.support.factories import make_execution, make_worker

pytestmark = pytest.mark.django_db

TODAY = datetime.now(UTC).date()
NIL = UUID(int=0)
MANY = """
INSERT INTO jobs_logpack (id, created_at, size) SELECT uuidv7(), now(), 1 FROM generate_series(1, 300);
INSERT INTO jobs_attempt (id, execution_id, number, worker_id, incarnation, placed_at, claimed_at, ended_at, reason,
                          error, log_truncated)
SELECT uuidv7(), %(execution)s, n, %(worker)s, 1, now(), now(), now() - interval '1 hour', 'exit', '', false
  FROM generate_series(1, 3000) n;
INSERT INTO jobs_attemptlog (execution_id, attempt, day, owner_id, job_id, pack_id, pack_offset, pack_length,
                             archived_to, settled_at)
SELECT %(execution)s, n, %(day)s, 1, %(execution)s, p.id, 0, 1, 0, now()
  FROM generate_series(1, 3000) n
  JOIN (SELECT id, row_number() OVER () AS m FROM jobs_logpack) p ON p.m = n %% 300 + 1
 WHERE n > 20;
INSERT INTO jobs_attemptlog (execution_id, attempt, day, owner_id, job_id)
SELECT %(execution)s, n, %(day)s, 1, %(execution)s FROM generate_series(1, 20) n;
INSERT INTO jobs_logchunk (day, execution_id, attempt, sequence, stream, logged_at, data)
SELECT %(day)s, %(execution)s, n, 0, 'stdout', now(), 'x' FROM generate_series(1, 3000) n;
ANALYZE jobs_logpack, jobs_attempt, jobs_attemptlog, jobs_logchunk, jobs_execution, jobs_job;
"""
CHUNK_KEY = f"jobs_logchunk_{TODAY:%Y%m%d}_pkey"
STATEMENTS: list[tuple[str, dict[str, Any], set[str]]] = [
    (
        "read_unarchived_logs",
        {
            "day": date.min,
            "execution_id": NIL,
            "attempt": 0,
            "limit": 1000,
            "complete_seconds": 15.0,
            "retry_seconds": 3600.0,
        },
        {"attempt_log_unarchived", "attempt_number_once"},
    ),
    ("settle_logs", {"limit": 5000}, {"attempt_log_unsettled", "jobs_attemptlog_pkey"}),
    (
        "record_packed_logs",
        {
            "pack_id": NIL,
            "execution_ids": [NIL],
            "attempts": [1],
            "offsets": [0],
            "lengths": [1],
            "lasts": [0],
        },
        {"jobs_attemptlog_pkey"},
    ),
    (
        "read_chunks_to_pack",
        {
            "days": [TODAY],
            "execution_ids": [NIL],
            "attempts": [1],
            "after": -1,
            "max_chunks": 2000,
            "max_bytes": 1,
        },
        {CHUNK_KEY},
    ),
    ("find_archived_logs", {"execution_id": NIL, "attempt": 1}, {"jobs_attemptlog_pkey", CHUNK_KEY}),
    (
        "mark_unarchived",
        {
            "day": TODAY,
            "from_id": first_id(datetime.now(UTC) - timedelta(days=9)),
            "to_id": first_id(datetime.now(UTC) - timedelta(days=8)),
        },
        {"jobs_attempt_pkey", "jobs_attemptlog_pkey", CHUNK_KEY},
    ),
]


@pytest.fixture(autouse=True)
def _many_logs() -> None:
    execution, worker = make_execution(), make_worker()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE jobs_attemptlog, jobs_logpack, jobs_logchunk")
        cursor.execute(MANY, {"execution": execution.id, "worker": worker.worker_id, "day": TODAY})


@pytest.mark.parametrize(("name", "parameters", "indexes"), STATEMENTS, ids=[each[0] for each in STATEMENTS])
def test_statement_uses_its_indexes(name: str, parameters: dict[str, Any], indexes: set[str]) -> None:
    explained = plan(name, parameters)
    assert indexes <= used(explained.replace("Index Only Scan", "Index Scan")), explained
    assert "Seq Scan on jobs_attemptlog" not in explained, explained
    assert "Seq Scan on jobs_logchunk" not in explained, explained


def test_unused_packs_are_found_by_index() -> None:
    explained = plan("delete_unused_log_packs", {"after": NIL, "bound": uuid4(), "limit": 5000})
    assert "jobs_logpack_pkey" in used(explained), explained
    assert any(name.startswith("jobs_attemptlog_pack_id") for name in used(explained)), explained


def test_reading_many_logs_stops_after_a_page() -> None:
    ids = [uuid4() for _ in range(500)]
    logs = {"days": [TODAY] * 500, "execution_ids": ids, "attempts": [1] * 500, "after": -1}
    explained = plan("read_chunks_to_pack", logs | {"max_chunks": 2000, "max_bytes": 1})
    # Only the chunks of one log are sorted, under the limit.
    assert "Presorted Key: w.n" in explained, explained
