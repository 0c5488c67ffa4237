"""How long searches take over the logs of millions of chunks, and how fast logs are indexed, beside a scan of one day.

`.venv/bin/python -m benchmarks.log_search [--chunks 1000000] [--queries 200]`
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from benchmarks.laboratory import laboratory, say
from benchmarks.verdict import Target, conclude, machine, percentile

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from jobs.logs.search import LogSearch

OWNERS = 50
JOBS = 500
DAYS = 30
CHUNKS_OF_EACH = 20
BATCH = 50_000
# A few owners have most of the jobs. Job n belongs to owner 50 * (n / 500) ** 3.
EXECUTIONS = """
CREATE TEMPORARY TABLE ended ON COMMIT DROP AS
SELECT n, uuidv7(at - now()) AS id, at, j.id AS job_id, j.owner_id, j.current_version_id AS version_id
  FROM generate_series(%(first)s::int, %(last)s::int) n
 CROSS JOIN LATERAL (SELECT now() - n * interval '30 days' / %(all)s AS at) t
  JOIN (SELECT row_number() OVER (ORDER BY id) - 1 AS place, * FROM jobs_job) j ON j.place = n * 7919::bigint %% 500;
INSERT INTO jobs_execution (id, job_id, version_id, queue_id, trigger, run_id, scheduled_for, state, attempt,
    tries_used, times_lost, rank, fired_at, ready_at, placed_at, claimed_at, started_at, ended_at, reason, exit_code,
    worker_id, incarnation)
SELECT e.id, e.job_id, e.version_id, q.id, 'manual', e.id, at, 'succeeded', 1, 1, 0, at, at, at, at, at, at, at, 'exit',
       0, w.id, w.incarnation
  FROM ended e, jobs_queue q, (SELECT * FROM jobs_worker LIMIT 1) w WHERE q.name = 'default';
INSERT INTO jobs_logsegment (day, execution_id, attempt, first_sequence, part, stream, owner_id, job_id, logged_from,
    logged_to, offsets, sequences, times, carried, text)
SELECT (at AT TIME ZONE 'UTC')::date, e.id, 1, 0, 0, CASE WHEN n %% 10 = 0 THEN 'stderr' ELSE 'stdout' END, e.owner_id,
       e.job_id, at, at + interval '20 s', l.offsets, l.sequences, l.times, 0, l.text
  FROM ended e
 CROSS JOIN LATERAL (
       SELECT string_agg(line, '' ORDER BY i) AS text, array_agg((i * 110)::int ORDER BY i) AS offsets,
              array_agg(i ORDER BY i) AS sequences, array_agg(e.at + i * interval '1 s' ORDER BY i) AS times
         FROM generate_series(0, 19) i
        CROSS JOIN LATERAL (SELECT e.n * 20::bigint + i AS k, md5(e.n::text || '/' || i) AS h) r
        CROSS JOIN LATERAL (SELECT to_char(e.at + i * interval '1 s', 'YYYY-MM-DD HH24:MI:SS.MS ')
              || CASE WHEN k %% 10 IN (0, 3, 6) THEN 'ERROR' WHEN k %% 10 = 1 THEN 'WARNING' ELSE 'INFO' END
              || ' [worker-' || k %% 16 || '] '
              || CASE k * 7919 %% 13
                 WHEN 0 THEN 'request ' || h || ' GET /api/v1/items/' || k %% 99991 || ' took ' || k %% 977 || ' ms'
                 WHEN 1 THEN 'Traceback (most recent call last): File "/srv/app/handlers/' || left(h, 6)
                             || '.py", line ' || k %% 400
                 WHEN 2 THEN 'connection to db-' || k %% 40 || '.internal:5432 timed out after 30 s, retrying'
                 WHEN 3 THEN 'ValueError: invalid literal for int() with base 10: "' || left(h, 8) || '"'
                 WHEN 4 THEN 'cache miss for key user:' || k %% 1000003 || ' region=eu-west-' || k %% 3
                 WHEN 5 THEN 'uploaded /var/lib/app/data/' || left(h, 2) || '/' || h || '.parquet (' || k %% 1048573
                             || ' bytes)'
                 WHEN 6 THEN 'processed batch ' || k || ' of customer ' || k %% 5003 || ' in ' || k %% 61 || ' s'
                 ELSE 'step ' || i || ' finished, checksum ' || left(h, 16) || ', next in ' || k %% 17 || ' s' END
              || CASE WHEN k %% 100003 = 7 THEN ' quota exceeded' ELSE '' END || E'\\n' AS line) x) l;
"""
# One in fifty segments has some Russian, folded as the indexer does it.
RUSSIAN = "ошибка: диск переполнен, осталось {} МБ\n"
FLOOR = "SELECT count(*) FROM jobs_logsegment WHERE day = %s AND text ILIKE %s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=200)
    options = parser.parse_args()
    result: dict[str, object] = {"benchmark": "log_search", "chunks": options.chunks, **machine()}
    with laboratory():
        users = _people()
        trigram_index = _read_index_definition()
        result["load_s"] = _timed(lambda: _fill(options.chunks // CHUNKS_OF_EACH))
        result["build_index_s"] = _timed(lambda: _build_index(trigram_index))
        result |= _sizes()
        say("searching")
        latencies, by_kind = _search(users, options.queries)
        result["by_kind"] = by_kind
        result["all_ms"] = {f"p{share}": round(percentile(latencies, share / 100)) for share in (50, 95, 99)}
        result["scan_of_one_day_ms"] = round(_floor() * 1000)
        say("indexing")
        result["indexing"] = _index()
    return conclude(result, {"search_p95_ms": Target(percentile(latencies, 0.95), at_most=300)})


def _people() -> list[User]:
    from django.contrib.auth.models import User
    from django.db import connection, transaction

    from benchmarks.population import FRESH, VERSIONS, ZONES, Parameters
    from benchmarks.population import JOBS as INSERT_JOBS
    from jobs.domain.worker_protocol import WorkerOffer
    from jobs.fleet.leases import register_worker
    from jobs.models import Artifact

    users = [User.objects.create(username=f"owner-{number}") for number in range(OWNERS)]
    users.append(User.objects.create(username="staff", is_staff=True))
    artifact = Artifact.objects.create(owner=users[0], sha256="0" * 64, size=1)
    register_worker(WorkerOffer("w", UUID(int=0), "default", "h", 1, 1.0, 1, 1, [], {}))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(FRESH, {"first": 1, "last": JOBS, "zones": ZONES})
        cursor.execute(INSERT_JOBS, {"owner": users[0].pk})
        spec: Parameters = {
            "artifact": str(artifact.pk),
            "runtime": "bash",
            "cpu": 0.25,
            "memory_mb": 64,
            "disk_mb": 16,
        }
        cursor.execute(VERSIONS, spec)
        cursor.execute(
            "UPDATE jobs_job j SET owner_id = %s + floor(50 * power((f.n - 1) / 500.0, 3))::int FROM fresh f"
            " WHERE f.job_id = j.id",
            [users[0].pk],
        )
    return users


def _read_index_definition() -> str:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_indexdef('log_segment_trigrams'::regclass)")
        (definition,) = cursor.fetchone()
    return str(definition)


def _fill(segments: int) -> None:
    from django.db import connection, transaction

    from jobs.db.partitions import create_partitions
    from jobs.logs.segments import fold

    create_partitions(today=datetime.now(UTC).date() - timedelta(days=DAYS), days=DAYS)
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX log_segment_trigrams")
    for first in range(0, segments, BATCH):
        last = min(first + BATCH, segments) - 1
        say(f"segments {first} to {last}")
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(EXECUTIONS, {"first": first, "last": last, "all": segments})
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT day, execution_id, text FROM jobs_logsegment WHERE hashtext(execution_id::text) % 50 = 0"
        )
        rows = [
            (text + RUSSIAN.format(number), fold(text + RUSSIAN.format(number)), day, execution_id)
            for number, (day, execution_id, text) in enumerate(cursor.fetchall())
        ]
        cursor.executemany(
            "UPDATE jobs_logsegment SET text = %s, folded = %s WHERE day = %s AND execution_id = %s", rows
        )


def _build_index(definition: str) -> None:
    from django.db import connection

    say("building the index of trigrams")
    with connection.cursor() as cursor:
        cursor.execute("SET maintenance_work_mem = '1GB'")
        cursor.execute(definition)
        cursor.execute("VACUUM ANALYZE jobs_logsegment")
        cursor.execute("VACUUM ANALYZE jobs_execution, jobs_job")


def _sizes() -> dict[str, object]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), sum(octet_length(text)) FROM jobs_logsegment",
        )
        segments, text = cursor.fetchone()
        cursor.execute(
            "SELECT sum(pg_table_size(inhrelid)), sum(pg_indexes_size(inhrelid)) FROM pg_inherits"
            " WHERE inhparent = 'jobs_logsegment'::regclass"
        )
        table, indexes = cursor.fetchone()
    megabyte = 2**20
    return {
        "segments": segments,
        "text_mb": round(text / megabyte),
        "table_mb": round(table / megabyte),
        "indexes_mb": round(indexes / megabyte),
    }


def _questions(users: list[User], number: int) -> dict[str, tuple[User, LogSearch]]:
    """Of each kind one, different every time; the largest owner unless it says otherwise."""
    import hashlib
    import random

    from jobs.logs.query import SearchMode, parse_query
    from jobs.logs.search import LogSearch
    from jobs.models import Job

    chance = random.Random(number)
    large, small, staff = users[0], users[40], users[-1]
    job = chance.choice(list(Job.objects.filter(owner=large).values_list("id", flat=True)[:50]))
    some = hashlib.md5(str(number).encode()).hexdigest()  # noqa: S324 - text that nobody has written
    now = datetime.now(UTC)

    def words(text: str, **given: Any) -> LogSearch:
        return LogSearch(parse_query(text, SearchMode.WORDS), **given)

    def part(text: str, **given: Any) -> LogSearch:
        return LogSearch(parse_query(text, SearchMode.SUBSTRING), **given)

    return {
        "rare id": (large, part(f"user:{chance.randrange(1_000_003)} ")),
        "common word": (large, words("error")),
        "absent": (large, part(some)),
        "absent, of common parts": (large, part("finished connection timed")),
        "common words, rare together": (large, words("quota exceeded error")),
        "common words, never together": (large, words("traceback parquet")),
        "one job": (large, words(f"customer {chance.randrange(5003)}", job_id=job)),
        "few logs": (small, words("checksum -error")),
        "few logs, absent": (small, part(some)),
        "staff, rare": (staff, part(f"items/{chance.randrange(99991)} took")),
        "staff, common": (staff, words("timed out", stream="stderr")),
        "a day, two weeks ago": (
            large,
            words("valueerror", since=now - timedelta(days=14), until=now - timedelta(days=13)),
        ),
        "russian": (large, part(f"осталось {chance.randrange(1000)} мб")),
    }


def _search(users: list[User], queries: int) -> tuple[list[float], dict[str, object]]:
    from jobs.logs.search import search_logs

    taken: dict[str, list[tuple[float, bool, int]]] = {}
    number = 0
    while sum(len(each) for each in taken.values()) < queries:
        for kind, (user, search) in _questions(users, number).items():
            began = time.perf_counter()
            found = search_logs(user, search, limit=50)
            spent = (time.perf_counter() - began) * 1000
            taken.setdefault(kind, []).append((spent, found.complete, len(found.lines)))
        number += 1
    by_kind: dict[str, object] = {
        kind: {
            "p50": round(percentile([ms for ms, _, _ in each], 0.5)),
            "p95": round(percentile([ms for ms, _, _ in each], 0.95)),
            "complete": round(sum(complete for _, complete, _ in each) / len(each), 2),
            "lines": round(sum(lines for _, _, lines in each) / len(each), 1),
        }
        for kind, each in taken.items()
    }
    return [ms for each in taken.values() for ms, _, _ in each], by_kind


def _floor() -> float:
    from django.db import connection

    def scan() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET enable_bitmapscan = off")
            cursor.execute(FLOOR, [datetime.now(UTC).date() - timedelta(days=3), "%quota exceeded%"])
            cursor.execute("RESET enable_bitmapscan")

    return min(_timed(scan) for _ in range(3))


def _index() -> dict[str, object]:
    """Chunks of the last ended executions, as text that is there already, indexed anew under other attempts."""
    from django.db import connection

    from jobs.logs.indexing import index_logs

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_attemptlog (execution_id, attempt, day, owner_id, job_id)"
            " SELECT execution_id, 2, day, owner_id, job_id FROM jobs_logsegment"
            " WHERE attempt = 1 ORDER BY day DESC, execution_id DESC LIMIT 4000"
        )
        cursor.execute(
            "INSERT INTO jobs_logchunk (day, execution_id, attempt, sequence, stream, logged_at, data)"
            " SELECT s.day, s.execution_id, 2, n, 'stdout', now(), convert_to(substr(s.text, n * 110 + 1, 110), 'UTF8')"
            " FROM jobs_attemptlog l JOIN jobs_logsegment s ON s.day = l.day AND s.execution_id = l.execution_id,"
            " generate_series(0, 19) n"
        )
        cursor.execute("ANALYZE jobs_attemptlog, jobs_logchunk")
    began = time.perf_counter()
    done = index_logs(within_seconds=300)
    spent = time.perf_counter() - began
    return {
        "chunks_per_s": round(done.chunks / spent),
        "mb_per_s": round(done.bytes / spent / 2**20, 2),
        "segments": done.segments,
        "finished": done.finished,
    }


def _timed(act: Any) -> float:
    began = time.perf_counter()
    act()
    return round(time.perf_counter() - began, 2)


if __name__ == "__main__":
    sys.exit(main())
