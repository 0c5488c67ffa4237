"""How many expired executions retention deletes a second, with their attempts and logs, beside a table in use.

`.venv/bin/python -m benchmarks.retention [--expired 100000] [--kept 20000] [--jobs 200]`

Every execution has an attempt and a stored log, one in ten an output. While retention runs, another connection places,
claims, starts and finishes fresh executions one by one; the benchmark shows how long they took, compared with before.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from datetime import timedelta
from uuid import UUID

import psutil

from benchmarks.laboratory import laboratory, say
from benchmarks.verdict import Target, conclude, machine, percentile

DAYS = 30
RETENTION = timedelta(days=DAYS)
# Within the day before the horizon and the days after it, each job's in turn.
EXECUTIONS = """
INSERT INTO jobs_execution (id, job_id, version_id, schedule_id, queue_id, trigger, run_id, scheduled_for, state,
    attempt, tries_used, times_lost, rank, fired_at, ready_at, placed_at, claimed_at, started_at, ended_at, reason,
    exit_code, worker_id, incarnation)
SELECT f.id, s.job_id, v.id, s.id, v.queue_id, 'schedule', f.id, f.at, 'succeeded', 1, 1, 0, f.at, f.at, f.at, f.at,
       f.at, f.at, f.at + interval '1 second', 'exit', 0, %(worker)s, 1
  FROM (SELECT n, uuidv7(at - now()) AS id, at
          FROM (SELECT n, now() - make_interval(days => %(days)s) + make_interval(secs => n * 0.5) AS at
                  FROM generate_series(%(first)s, %(last)s) n) a) f
  JOIN (SELECT s.*, row_number() OVER (ORDER BY s.id) - 1 AS nth FROM jobs_schedule s) s ON s.nth = abs(f.n) %% %(jobs)s
  JOIN jobs_jobversion v ON v.job_id = s.job_id
"""
ATTEMPTS = """
INSERT INTO jobs_attempt (id, execution_id, number, worker_id, incarnation, placed_at, claimed_at, started_at, ended_at,
    reason, exit_code, error, log_truncated, receipt)
SELECT uuidv7(e.fired_at - now()), e.id, 1, e.worker_id, 1, e.placed_at, e.claimed_at, e.started_at, e.ended_at,
       'exit', 0, '', false, '{"namespaces": ["pid", "mnt", "ipc"], "limits": {"memory_mb": 64}}'
  FROM jobs_execution e
"""
LOGS = """
INSERT INTO jobs_attemptlog (execution_id, attempt, day, owner_id, job_id, settled_at)
SELECT e.id, 1, e.claimed_at::date, j.owner_id, e.job_id, now() FROM jobs_execution e JOIN jobs_job j ON j.id = e.job_id
"""
OUTPUTS = """
INSERT INTO jobs_output (id, attempt_id, owner_id, name, size, sha256)
SELECT uuidv7(), a.id, j.owner_id, 'out', 1, repeat('0', 64)
  FROM jobs_attempt a JOIN jobs_execution e ON e.id = a.execution_id JOIN jobs_job j ON j.id = e.job_id
 WHERE hashtext(a.id::text) %% 10 = 0
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expired", type=int, default=100_000)
    parser.add_argument("--kept", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=200)
    options = parser.parse_args()
    result: dict[str, object] = {"benchmark": "retention", **machine(), **vars(options)}
    with laboratory():
        measured = _measure(options.expired, options.kept, options.jobs)
    return conclude(
        result | measured, {"executions_per_s": Target(float(str(measured["executions_per_s"])), at_least=5000)}
    )


def _measure(expired: int, kept: int, jobs: int) -> dict[str, object]:
    from django.db import connection

    from jobs.housekeeping.history_retention import prune_history
    from jobs.models import Execution
    from tests.support.factories import make_job, make_schedule, make_user, make_worker

    say(f"making {expired + kept:,} executions")
    owner, worker = make_user(), make_worker()
    for number in range(jobs):
        make_schedule(job=make_job(owner=owner, name=f"job {number}", max_concurrency=None))
    with connection.cursor() as cursor:
        # The first of those that stay is a minute younger than the horizon will be when retention starts.
        for first, last in ((-expired, -1), (7200, 7200 + kept - 1)):
            parameters: dict[str, UUID | int] = {
                "worker": worker.worker_id,
                "days": DAYS,
                "first": first,
                "last": last,
                "jobs": jobs,
            }
            cursor.execute(EXECUTIONS, parameters)
        for statement in (ATTEMPTS, LOGS, OUTPUTS):
            cursor.execute(statement.replace("%%", "%"))
        cursor.execute("VACUUM ANALYZE")
    runs = _Runs(owner, worker)
    alone = runs.take(seconds=2)
    say("pruning")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        backend = psutil.Process(cursor.fetchone()[0])
    used = sum(backend.cpu_times()[:2])
    with runs:
        started = time.perf_counter()
        result = prune_history(retention=RETENTION, within_seconds=600)
        seconds = time.perf_counter() - started
    used = sum(backend.cpu_times()[:2]) - used
    say(f"{result.executions:,} executions in {seconds:.1f} s")
    assert result.executions == expired, result
    assert Execution.objects.filter(fired_at__lt=result.horizon).count() == 0
    return {
        "executions_per_s": round(result.executions / seconds),
        "postgres_cpu_us": round(1e6 * used / result.executions),
        "run_ms_alone": _summarize(alone),
        "run_ms_beside": _summarize(runs.times),
    }


def _summarize(times: list[float]) -> dict[str, float]:
    return {f"p{share}": round(1000 * percentile(times, share / 100), 1) for share in (50, 99, 100)} | {
        "runs": len(times)
    }


class _Runs:
    """Executions that are created, placed, claimed, started and finished on a connection of their own, one by one."""

    def __init__(self, owner: object, worker: object) -> None:
        from tests.support.factories import make_job

        self.times: list[float] = []
        self._job = make_job(owner=owner, name="beside", max_concurrency=None)  # type: ignore[arg-type]
        self._worker = worker
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._go_on)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._left.set()
        self._thread.join()

    def take(self, *, seconds: float) -> list[float]:
        times: list[float] = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            times.append(self._run())
        return times

    def _go_on(self) -> None:
        from django.db import connection

        try:
            while not self._left.is_set():
                self.times.append(self._run())
        finally:
            connection.close()

    def _run(self) -> float:
        from jobs.domain.states import Reason
        from jobs.domain.worker_protocol import RunReport
        from jobs.execution.attempts import finish_attempt
        from tests.support.factories import make_execution, run_on

        started = time.perf_counter()
        fence = run_on(self._worker, make_execution(job=self._job))  # type: ignore[arg-type]
        finish_attempt(fence, RunReport(reason=Reason.EXIT, exit_code=0))
        return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
