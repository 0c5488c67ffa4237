"""What Postgres writes for one execution from firing to success: log records, their bytes, heap and index tuples.

`.venv/bin/python -m benchmarks.writes [--executions 2000] [--history 0]`

The real statements fire, place, claim, start and finish; pg_walinspect counts what they wrote, so other work on the
machine does not change the result. Images of whole pages, which depend on the time since the last checkpoint, are
counted apart.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psutil
import psycopg

from benchmarks.laboratory import laboratory, say
from benchmarks.verdict import Target, conclude, machine

if TYPE_CHECKING:
    from jobs.models import Schedule

JOBS = 50
BATCH = 100
# A test of the suite runs fewer.
EXECUTIONS = 2000
MAX_INDEX_TUPLES = 17.5
MAX_WAL_BYTES = 6000.0
WRITTEN = """
WITH records AS MATERIALIZED (
    SELECT start_lsn, resource_manager, record_type, record_length, fpi_length
      FROM pg_get_wal_records_info(%(first)s::pg_lsn, %(last)s::pg_lsn)
), tuples AS (
    SELECT b.start_lsn, c.relname
      FROM pg_get_wal_block_info(%(first)s::pg_lsn, %(last)s::pg_lsn, false) b
      LEFT JOIN pg_class c ON pg_relation_filenode(c.oid) = b.relfilenode
     WHERE b.block_id = 0 AND b.relforknumber = 0
)
SELECT r.resource_manager, r.record_type, coalesce(t.relname, ''), count(*),
       sum(r.record_length - r.fpi_length)::bigint, sum(r.fpi_length)::bigint
  FROM records r LEFT JOIN tuples t ON t.start_lsn = r.start_lsn
 GROUP BY 1, 2, 3
"""
HISTORY = """
INSERT INTO jobs_execution (id, job_id, version_id, schedule_id, queue_id, trigger, run_id, scheduled_for, state,
    attempt, tries_used, times_lost, rank, fired_at, ready_at, ended_at, reason, exit_code)
SELECT f.id, s.job_id, v.id, s.id, v.queue_id, 'schedule', f.id, now() - make_interval(days => 30, secs => f.n),
       'succeeded', 1, 1, 0, now(), now() - interval '30 days', now() - interval '30 days',
       now() - interval '30 days', 'exit', 0
  FROM (SELECT n, uuidv7(interval '-30 days' + make_interval(secs => n * 0.01)) AS id
          FROM generate_series(1, %(count)s) n) f
  JOIN (SELECT s.*, row_number() OVER (ORDER BY s.id) - 1 AS nth FROM jobs_schedule s) s ON s.nth = f.n %% %(jobs)s
  JOIN jobs_jobversion v ON v.job_id = s.job_id
"""


@dataclass(slots=True)
class Written:
    """What a step wrote, in total."""

    records: int = 0
    wal_bytes: int = 0
    page_image_bytes: int = 0
    commits: int = 0
    index_tuples: dict[str, int] = field(default_factory=dict)
    heap_records: dict[str, int] = field(default_factory=dict)
    bytes_by_record: dict[str, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0

    def per(self, executions: int) -> dict[str, object]:
        return {
            "records": round(self.records / executions, 2),
            "wal_bytes": round(self.wal_bytes / executions),
            "page_image_bytes": round(self.page_image_bytes / executions),
            "commits": round(self.commits / executions, 2),
            "postgres_cpu_ms": round(1000 * self.cpu_seconds / executions, 3),
            "index_tuples": round(sum(self.index_tuples.values()) / executions, 2),
            "by_index": _shares(self.index_tuples, executions),
            "heap_records": _shares(self.heap_records, executions),
            "bytes_by_record": _shares(self.bytes_by_record, executions),
        }


def _shares(counts: dict[str, int], executions: int) -> dict[str, float]:
    shares = {name: round(count / executions, 2) for name, count in sorted(counts.items())}
    return {name: share for name, share in shares.items() if share >= 0.05}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executions", type=int, default=EXECUTIONS)
    parser.add_argument("--history", type=int, default=0, help="ended executions that the table has before")
    options = parser.parse_args()
    result: dict[str, object] = {"benchmark": "writes", **machine(), **vars(options)}
    with laboratory() as room:
        with psycopg.connect(room.superuser_url, autocommit=True) as superuser:
            superuser.execute("CREATE EXTENSION pg_walinspect")
            superuser.execute("GRANT pg_read_server_files, pg_checkpoint TO punctual")
        steps = _measure(options.executions, options.history)
    whole = {
        name: round(sum(float(str(step[name])) for step in steps.values()), 2)
        for name in ("index_tuples", "wal_bytes", "records", "commits", "postgres_cpu_ms")
    }
    return conclude(
        result | {"per_execution": whole, "steps": steps},
        {
            "index_tuples": Target(whole["index_tuples"], at_most=MAX_INDEX_TUPLES),
            "wal_bytes": Target(whole["wal_bytes"], at_most=MAX_WAL_BYTES),
        },
    )


def _measure(executions: int, history: int) -> dict[str, dict[str, object]]:
    from django.db import connection

    from jobs.domain.states import Reason
    from jobs.domain.worker_protocol import AttemptFence, RunReport
    from jobs.execution import transitions
    from jobs.execution.attempts import claim_attempt, finish_attempt, start_attempt
    from jobs.execution.transitions import NewExecution, Placement
    from jobs.models import Execution, Trigger
    from tests.support.factories import make_job, make_schedule, make_worker

    worker = make_worker()
    schedules = [make_schedule(job=make_job(max_concurrency=None)) for _ in range(JOBS)]
    if history:
        say(f"making {history:,} ended executions")
        with connection.cursor() as cursor:
            cursor.execute(HISTORY, {"count": history, "jobs": JOBS})
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")
    steps = {name: Written() for name in ("fire", "place", "claim", "start", "finish")}
    report = RunReport(reason=Reason.EXIT, exit_code=0, cpu_seconds=0.1, peak_memory_bytes=1000, peak_disk_bytes=1000)
    started = time.monotonic()
    for instants in _batches(executions, schedules):
        new = [
            NewExecution(schedule.job_id, Trigger.SCHEDULE, schedule_id=schedule.id, scheduled_for=instant)
            for schedule, instant in instants
        ]
        with _counting(steps["fire"]):
            ids = transitions.create_executions(new)
        with _counting(steps["place"]):
            transitions.place([Placement(each, worker.worker_id, worker.incarnation) for each in ids])
        fences = [AttemptFence(each, 1, worker.worker_id, worker.incarnation) for each in ids]
        with _counting(steps["claim"]):
            for fence in fences:
                claim_attempt(fence)
        with _counting(steps["start"]):
            for fence in fences:
                start_attempt(fence, {"namespaces": ["pid", "mnt", "ipc"], "limits": {"memory_mb": 64}})
        with _counting(steps["finish"]):
            for fence in fences:
                finish_attempt(fence, report)
    say(f"{executions:,} executions in {time.monotonic() - started:.1f} s")
    done = Execution.objects.filter(state="succeeded").count()
    assert done == executions + history, f"{done} executions succeeded"
    return {name: step.per(executions) for name, step in steps.items()}


def _batches(executions: int, schedules: Sequence[Schedule]) -> Iterator[list[tuple[Schedule, datetime]]]:
    start = datetime.now(UTC)
    for first in range(0, executions, BATCH):
        numbers = range(first, min(first + BATCH, executions))
        yield [(schedules[n % len(schedules)], start + timedelta(seconds=n)) for n in numbers]


@contextmanager
def _counting(step: Written) -> Iterator[None]:
    """Count what is written meanwhile."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_insert_lsn(), pg_backend_pid()")
        first, backend = cursor.fetchone()
        process = psutil.Process(backend)
        used = sum(process.cpu_times()[:2])
        yield
        step.cpu_seconds += sum(process.cpu_times()[:2]) - used
        # Asynchronous commits may not have reached the disk yet, where pg_walinspect reads them.
        cursor.execute("SELECT pg_current_wal_insert_lsn(), pg_logical_emit_message(false, 'x', 'x', true)")
        last, _ = cursor.fetchone()
        cursor.execute(WRITTEN, {"first": first, "last": last})
        for manager, recorded, relation, count, length, images in cursor.fetchall():
            step.records += count
            step.wal_bytes += length
            step.page_image_bytes += images
            kind = recorded.removesuffix("+INIT")
            step.bytes_by_record[f"{manager} {kind}"] = step.bytes_by_record.get(f"{manager} {kind}", 0) + length
            if manager == "Transaction" and kind.startswith("COMMIT"):
                step.commits += count
            if manager == "Btree" and kind.startswith(("INSERT", "SPLIT")) and not kind.endswith("UPPER"):
                step.index_tuples[relation] = step.index_tuples.get(relation, 0) + count
            if manager.startswith("Heap"):
                name = f"{relation} {kind}"
                step.heap_records[name] = step.heap_records.get(name, 0) + count


if __name__ == "__main__":
    sys.exit(main())
