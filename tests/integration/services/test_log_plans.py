"""Searching never reads all segments: it walks a sorted index, or asks that of trigrams."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from jobs import sql
from jobs.services import log_search

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
WANTED: dict[str, Any] = {
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


def plan(name: str, *, scans: tuple[str, str], analyzed: bool, **given: object) -> str:
    with connection.cursor() as cursor:
        if analyzed:
            cursor.execute("ANALYZE jobs_logsegment")
        cursor.execute(log_search._BOUNDS, ["5s", *scans])
        cursor.execute(f"EXPLAIN {sql.statement(name)}", WANTED | given)
        return "\n".join(line for (line,) in cursor.fetchall())


@pytest.mark.parametrize("analyzed", [False, True], ids=["a day that just began", "analyzed"])
@pytest.mark.parametrize(
    ("given", "index"), [({}, "pkey"), ({"owner_id": 7}, "owner_id_day"), ({"job_id": JOB}, "job_id_day")]
)
def test_a_walk_goes_backwards_through_a_sorted_index(analyzed: bool, given: dict[str, object], index: str) -> None:
    shown = plan("walk_segments", scans=log_search._SORTED, analyzed=analyzed, **given)
    assert "Seq Scan on jobs_logsegment" not in shown, shown
    assert f"Index Scan Backward using jobs_logsegment_{TODAY:%Y%m%d}_" in shown, shown
    if index != "job_id_day":  # all are of one job here: its index is no better than the primary key
        assert f"using jobs_logsegment_{TODAY:%Y%m%d}_{index}" in shown, shown


@pytest.mark.parametrize(
    ("given", "analyzed", "asked"),
    [
        ({}, True, "owner_id_job_id_coalesce"),
        ({"job_id": JOB}, True, "owner_id_job_id_coalesce"),
        ({"owner_id": 7}, True, "owner_id_job_id_coalesce"),
        # Of a day that has just begun it may look at all: soon done, or it is stopped and walks.
        ({"owner_id": 7}, False, "owner_id_"),
    ],
)
def test_what_is_rare_is_asked_of_the_trigrams(given: dict[str, object], analyzed: bool, asked: str) -> None:
    shown = plan("find_segments", scans=log_search._BITMAP, analyzed=analyzed, **given)
    assert "Seq Scan on jobs_logsegment" not in shown, shown
    assert f"Bitmap Index Scan on jobs_logsegment_{TODAY:%Y%m%d}_{asked}" in shown, shown
