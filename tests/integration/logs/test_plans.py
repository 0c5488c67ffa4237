"""Query plans of log search: it scans a sorted index backwards or uses the trigram index, never a full scan."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from jobs.db import sql
from jobs.logs import search

pytestmark = pytest.mark.django_db

TODAY = datetime.now(UTC).date()
MANY = """
INSERT INTO jobs_logsegment (day, execution_id, attempt, first_sequence, part, stream, owner_id, job_id, logged_from,
    logged_to, offsets, sequences, times, carried, text)
SELECT %s, uuidv7(), 1, 0, 0, 'stdout', n %% 50, %s, now(), now(), '{0}', '{0}', ARRAY[now()], 0,
       repeat('INFO worker did ' || md5(n::text) || E'\\n', 20)
  FROM generate_series(1, 3000) n
"""
JOB = uuid4()
PARAMETERS: dict[str, Any] = {
    "day": TODAY,
    "execution_id": UUID(int=2**128 - 1),
    **dict.fromkeys(("attempt", "first_sequence", "part"), 2**31 - 1),
    **dict.fromkeys(("owner_id", "job_id", "stream", "since", "until")),
    "first_day": TODAY,
    "limit": 32,
    "needle": "%d3d9446802a44259%",
    "other_needle": "%d3d9446802a44259%",
}


@pytest.fixture(autouse=True)
def many_segments() -> None:
    with connection.cursor() as cursor:
        cursor.execute(MANY, [TODAY, JOB])


def plan(name: str, *, scans: tuple[str, str], analyzed: bool, **filters: object) -> str:
    with connection.cursor() as cursor:
        if analyzed:
            cursor.execute("ANALYZE jobs_logsegment")
        else:
            # A rollback does not undo the statistics that an earlier ANALYZE or autovacuum stored.
            cursor.execute("SELECT pg_clear_relation_stats('public', %s)", [f"jobs_logsegment_{TODAY:%Y%m%d}"])
        cursor.execute(search._PLANNER_SETTINGS, ["5s", *scans])
        cursor.execute(f"EXPLAIN {sql.statement(name)}", PARAMETERS | filters)
        return "\n".join(line for (line,) in cursor.fetchall())


@pytest.mark.parametrize("analyzed", [False, True], ids=["a day that just began", "analyzed"])
@pytest.mark.parametrize(
    ("filters", "index"), [({}, "pkey"), ({"owner_id": 7}, "owner_id_day"), ({"job_id": JOB}, "job_id_day")]
)
def test_scan_reads_a_sorted_index_backwards(analyzed: bool, filters: dict[str, object], index: str) -> None:
    explained = plan("scan_segments", scans=search._INDEX_SCAN, analyzed=analyzed, **filters)
    assert "Seq Scan on jobs_logsegment" not in explained, explained
    assert f"Index Scan Backward using jobs_logsegment_{TODAY:%Y%m%d}_" in explained, explained
    if index != "job_id_day":  # all rows have one job here, so its index is no better than the primary key
        assert f"using jobs_logsegment_{TODAY:%Y%m%d}_{index}" in explained, explained


@pytest.mark.parametrize(
    ("filters", "analyzed", "index"),
    [
        ({}, True, "owner_id_job_id_coalesce"),
        ({"job_id": JOB}, True, "owner_id_job_id_coalesce"),
        ({"owner_id": 7}, True, "owner_id_job_id_coalesce"),
        # On a day that has just begun it may read all rows of an owner, or time out and scan.
        ({"owner_id": 7}, False, "owner_id_"),
    ],
)
def test_rare_term_uses_the_trigram_index(filters: dict[str, object], analyzed: bool, index: str) -> None:
    explained = plan("search_segments", scans=search._BITMAP_SCAN, analyzed=analyzed, **filters)
    assert "Seq Scan on jobs_logsegment" not in explained, explained
    assert f"Bitmap Index Scan on jobs_logsegment_{TODAY:%Y%m%d}_{index}" in explained, explained
