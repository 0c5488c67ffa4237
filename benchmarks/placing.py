"""How long one real placement pass takes that places a single fresh execution among very many that are held back.

`.venv/bin/python -m benchmarks.placing [--jobs 1000] [--waiting 999] [--others 100000]`
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from benchmarks.laboratory import laboratory, say
from benchmarks.verdict import Target, conclude, machine

if TYPE_CHECKING:
    from django.contrib.auth.models import User

WORKERS = 50
ROUNDS = 9
MOST_PASSES = 20_000
MAX_PASS_MS = 50.0
# What was held back first was ready first: all of it stands before the fresh one.
WAITING = """
INSERT INTO jobs_execution (id, job_id, version_id, queue_id, trigger, run_id, scheduled_for, state, attempt,
    tries_used, times_lost, rank, fired_at, ready_at)
SELECT id, job_id, version_id, queue_id, 'manual', id, now(), 'ready', 0, 0, 0,
       now() - make_interval(hours => 2) + make_interval(secs => n * 0.001), now(), now()
  FROM (SELECT uuidv7() AS id, j.id AS job_id, v.id AS version_id, v.queue_id, n
          FROM unnest(%(jobs)s::uuid[]) AS w (id) JOIN jobs_job j ON j.id = w.id
          JOIN jobs_jobversion v ON v.id = j.current_version_id, generate_series(1, %(each)s) n) fresh
"""
RUNNING = """
INSERT INTO jobs_execution (id, job_id, version_id, queue_id, trigger, run_id, scheduled_for, state, attempt,
    tries_used, times_lost, rank, fired_at, ready_at, worker_id, incarnation, placed_at, claimed_at, started_at)
SELECT id, job_id, version_id, queue_id, 'manual', id, now(), 'running', 1, 0, 0, now(), now(), now(), %(worker)s, 1,
       now(), now(), now()
  FROM (SELECT uuidv7() AS id, j.id AS job_id, v.id AS version_id, v.queue_id
          FROM unnest(%(jobs)s::uuid[]) AS w (id) JOIN jobs_job j ON j.id = w.id
          JOIN jobs_jobversion v ON v.id = j.current_version_id) fresh
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--waiting", type=int, default=999, help="Of each of these jobs, which has one running.")
    parser.add_argument(
        "--others", type=int, default=100_000, help="Behind a full owner, and as many for a busy resource."
    )
    options = parser.parse_args()
    result: dict[str, object] = {"benchmark": "placing", **machine(), **vars(options)}
    with laboratory():
        passes = _measure_all(options.jobs, options.waiting, options.others)
    worst = max(each["pass_ms"] for name, each in passes.items() if name != "scarce")
    return conclude(
        result | {"passes": passes},
        {
            "pass_ms": Target(passes["job_limits"]["pass_ms"], at_most=MAX_PASS_MS),
            "worst_pass_ms": Target(worst, at_most=MAX_PASS_MS),
            "scarce_pass_ms": Target(passes["scarce"]["pass_ms"], at_most=4 * MAX_PASS_MS),
            "passes_to_place": Target(passes["job_limits"]["passes_to_place"], at_most=1),
        },
    )


def _measure_all(jobs: int, waiting: int, others: int) -> dict[str, dict[str, float]]:
    """Each with everything before it still there."""
    from django.contrib.auth.models import User

    from jobs.models import OwnerQuota

    owner = User.objects.create(username="benchmark")
    limited = User.objects.create(username="limited")
    OwnerQuota.objects.create(owner=limited, concurrent_executions=1)
    # Slots for whatever is to run, and one gpu, which is taken.
    workers = [_register(f"worker-{n}", {"gpu": 1} if n == 0 else {}) for n in range(WORKERS)]
    fresh = _make_jobs(owner, ROUNDS * 8)
    passes = {"nothing": _measure("nothing", fresh)}
    held = _make_jobs(owner, jobs)
    _insert(RUNNING, held, worker=workers[1])
    _insert(WAITING, held, each=waiting)
    passes["job_limits"] = _measure(f"{jobs} jobs at their limit, {waiting} waiting each", fresh)
    (wide,) = _make_jobs(limited, 1, max_concurrency=None)
    _insert(RUNNING, [wide], worker=workers[1])
    _insert(WAITING, [wide], each=others)
    passes["owner_limit"] = _measure(f"an owner at their limit, {others} waiting", fresh)
    (narrow,) = _make_jobs(owner, 1, max_concurrency=None, queue="narrow")
    _insert(RUNNING, [narrow], worker=workers[1])
    _insert(WAITING, [narrow], each=others)
    passes["queue_limit"] = _measure(f"a queue at its limit, {others} waiting", fresh)
    (scarce,) = _make_jobs(owner, 1, max_concurrency=None, resources={"gpu": 1})
    _insert(RUNNING, [scarce], worker=workers[0])
    _insert(WAITING, [scarce], each=others)
    passes["scarce"] = _measure(f"a busy resource, {others} waiting", fresh)
    return passes


def _register(name: str, resources: dict[str, int]) -> UUID:
    from jobs.domain.worker_protocol import WorkerOffer
    from jobs.fleet.leases import register_worker

    offer = WorkerOffer(
        name=name, instance=UUID(int=0), pool="default", host="here", slots=10_000, cpu=10_000.0, memory_mb=10**9,
        disk_mb=10**9, capabilities=["bash"], details={}, resources=resources,
    )  # fmt: skip
    return register_worker(offer).worker_id


def _make_jobs(owner: User, count: int, *, queue: str = "default", **fields: object) -> list[UUID]:
    from jobs.models import Artifact, Job, JobVersion, Queue

    in_queue, _ = Queue.objects.get_or_create(
        name=queue, defaults={"max_concurrency": 1 if queue == "narrow" else None}
    )
    artifact, _ = Artifact.objects.get_or_create(owner=owner, sha256="0" * 64, defaults={"size": 1})
    jobs = Job.objects.bulk_create([Job(owner=owner, name=f"{queue} {n}", state="active") for n in range(count)])
    versions = JobVersion.objects.bulk_create(
        JobVersion(
            **{
                "job": job,
                "number": 1,
                "artifact": artifact,
                "runtime": "bash",
                "queue": in_queue,
                "priority": 5,
                "cpu": 0.1,
            }
            | {"memory_mb": 64, "disk_mb": 16, "timeout_seconds": 60, "max_concurrency": 1}
            | fields
        )
        for job in jobs
    )
    for job, version in zip(jobs, versions, strict=True):
        job.current_version = version
    Job.objects.bulk_update(jobs, ["current_version"], batch_size=1000)
    return [job.id for job in jobs]


def _insert(statement: str, jobs: list[UUID], **parameters: int | UUID) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, {"jobs": jobs, **parameters})
        cursor.execute("ANALYZE jobs_execution, jobs_job, jobs_jobversion")


def _measure(what: str, fresh: list[UUID]) -> dict[str, float]:
    """First until nothing changes any more, which is when what is held back has been found to be; then pass by pass."""
    from jobs.dispatch.placement import place_ready_executions
    from jobs.execution.transitions import NewExecution, create_executions
    from jobs.models import Execution, Trigger, Worker

    say(what)
    Worker.objects.update(lease_until="2100-01-01T00:00Z")
    settling = time.perf_counter()
    worst = passes = 0.0
    resume: dict[str, object] = {}
    while passes < MOST_PASSES:
        before = _candidates()
        took = _timed(lambda: resume.update(resume=place_ready_executions(**resume).resume))  # type: ignore[arg-type]
        worst, passes = max(worst, took), passes + 1
        if not resume["resume"] and _candidates() == before:
            break
    settled = time.perf_counter() - settling
    times, needed = [], []
    for _ in range(ROUNDS):
        (execution,) = create_executions([NewExecution(fresh.pop(), Trigger.MANUAL)])
        tries = 0
        while Execution.objects.get(id=execution).state == "ready":
            times.append(_timed(lambda: resume.update(resume=place_ready_executions(**resume).resume)))  # type: ignore[arg-type]
            tries += 1
            assert tries < 1000, f"{what}: the fresh execution was never placed"
        needed.append(tries)
    return {
        # The best of a few: the rest is what others did on the machine.
        "pass_ms": round(min(times) * 1000, 2),
        "middle_pass_ms": round(statistics.median(times) * 1000, 2),
        "worst_pass_ms": round(max(worst, *times) * 1000, 2),
        "passes_to_place": max(needed),
        "settling_s": round(settled, 2),
        "settling_passes": passes,
    }


def _candidates() -> int:
    from jobs.models import Execution

    return Execution.objects.filter(state="ready", job_line=None, owner_line=None).count()


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
