"""How fast due schedules become executions, and messages, among a million others; beside bare SQL in the same run.

`.venv/bin/python -m benchmarks.firing [--schedules 1000000] [--due 20000]`
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import psutil

from benchmarks.laboratory import laboratory, make_due, make_schedules

ROOT = Path(__file__).resolve().parents[1]
# What any correct program must at least do: lock, insert and advance, in batches of the same size, computing nothing.
FLOOR = """
WITH due AS MATERIALIZED (
    SELECT s.id, s.job_id, s.next_instant FROM jobs_schedule s
     WHERE s.next_fire_at <= statement_timestamp() ORDER BY s.next_fire_at LIMIT %(limit)s
       FOR NO KEY UPDATE SKIP LOCKED
), inserted AS (
    INSERT INTO jobs_execution (id, job_id, version_id, schedule_id, queue_id, trigger, run_id, scheduled_for, state,
        attempt, tries_used, times_lost, rank, fired_at, ready_at)
    SELECT i.id, d.job_id, j.current_version_id, d.id, v.queue_id, 'schedule', i.id, d.next_instant, 'ready', 0, 0, 0,
           now(), now(), now()
      FROM due d JOIN jobs_job j ON j.id = d.job_id JOIN jobs_jobversion v ON v.id = j.current_version_id,
           LATERAL (SELECT gen_random_uuid() AS id WHERE d.id IS NOT NULL) i)
UPDATE jobs_schedule s
   SET next_instant = due.next_instant + interval '3 days', next_fire_at = due.next_instant + interval '3 days'
  FROM due WHERE s.id = due.id
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=20_000)
    options = parser.parse_args()
    with laboratory():
        result: dict[str, object] = {"benchmark": "firing", "schedules": options.schedules, "due": options.due}
        per_firing: dict[int, float] = {}
        made = 0
        for size in sorted({min(10_000, options.schedules), min(100_000, options.schedules), options.schedules}):
            make_schedules(size - made)
            made = size
            due = min(options.due, size // 2)
            # Two rounds each, in turn: the first warms caches for both alike.
            rates = [(_rate(due, _fire_floor), _rate(due, _fire)) for _ in range(2)]
            floor, real = rates[-1]
            per_firing[size] = 1e6 / real
            result |= {
                "floor_per_s": round(floor),
                "fired_per_s": round(real),
                "share_of_floor": round(real / floor, 2),
            }
        smallest, largest = min(per_firing), max(per_firing)
        result["microseconds_per_firing"] = {str(size): round(cost, 1) for size, cost in per_firing.items()}
        result["growth"] = round(per_firing[largest] / per_firing[smallest], 2)
        result["to_message_per_s"] = round(_rate(min(options.due, options.schedules // 2), _to_message()))
        result |= _beat()
        print(json.dumps(result))


def _rate(due: int, act: Callable[[], None]) -> float:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE jobs_execution CASCADE")
    make_due(due)
    started = time.perf_counter()
    act()
    return due / (time.perf_counter() - started)


def _fire() -> None:
    from jobs.services.firing import fire_due_schedules

    while fire_due_schedules().schedules:
        pass


def _fire_floor() -> None:
    from django.db import connection, transaction

    from jobs import conf

    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(FLOOR, {"limit": conf.FIRE_BATCH_SCHEDULES})
            if not cursor.rowcount:
                return


def _to_message() -> Callable[[], None]:
    """From due to the message in Redis, through the real placement, with synthetic workers that take everything."""
    from jobs.broker import BrokerSender
    from jobs.models import Execution, Worker
    from jobs.services.firing import fire_due_schedules
    from jobs.services.leases import Offer, register_worker
    from jobs.services.placement import place_ready_executions
    from jobs.services.publishing import publish_queued
    from scheduler_project.celery import app

    for number in range(10):
        register_worker(
            Offer(
                name=f"synthetic-{number}-{uuid4()}", instance=uuid4(), pool="default", host="benchmark",
                slots=1_000_000, cpu=1e6, memory_mb=10**9, disk_mb=10**9, capabilities=["bash"], details={},
            )
        )  # fmt: skip
    # Nobody renews for them.
    Worker.objects.update(lease_until=datetime.now(UTC) + timedelta(days=1))
    sender = BrokerSender(app)

    def act() -> None:
        deadline, waiting = time.monotonic() + 120, True
        while waiting and time.monotonic() < deadline:
            fired = fire_due_schedules().schedules
            place_ready_executions()
            publish_queued(sender.send)
            waiting = bool(fired) or Execution.objects.filter(published_at__isnull=True).exists()

    return act


def _beat() -> dict[str, object]:
    """A real beat on this database: how long until it fires for the first time, and how much memory it takes."""
    from jobs.models import Execution

    count = Execution.objects.count()
    make_due(100)
    started = time.monotonic()
    beat = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "scheduler_project", "beat", "--pidfile="],
        cwd=ROOT, env=dict(os.environ), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while Execution.objects.count() == count and time.monotonic() < started + 60:
            time.sleep(0.02)
        first = time.monotonic() - started
        memory = []
        for _ in range(10):
            time.sleep(1)
            memory.append(psutil.Process(beat.pid).memory_info().rss // 2**20)
    finally:
        beat.terminate()
        beat.wait(30)
    return {
        "beat_first_firing_s": round(first, 2),
        "beat_memory_mb": memory[-1],
        "beat_memory_grew_mb": memory[-1] - memory[0],
    }


if __name__ == "__main__":
    main()
