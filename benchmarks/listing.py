"""How long a page of each kind of list takes among a million jobs, five million executions, and in how many statements.

`.venv/bin/python -m benchmarks.listing [--jobs 1000000] [--executions 5000000]`
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING
from uuid import UUID

from benchmarks.laboratory import laboratory, say
from benchmarks.population import make_history, make_schedules, settle_tables
from benchmarks.verdict import Target, conclude, machine, percentile

if TYPE_CHECKING:
    from rest_framework.test import APIClient

JOBS, EXECUTIONS = 1_000_000, 5_000_000
ROUNDS = 60
MAX_P99_MS = 100.0
# A page's rows come in five statements (token, rows, three of what belongs to them); the rest finds which they are.
MAX_STATEMENTS = 12
SMALL_OWNER_JOBS = 200
# Rare kinds, spread over the whole table: what a filter must find among everything else.
SPREAD = """
UPDATE jobs_job SET owner_id = %(small)s WHERE id IN (SELECT id FROM jobs_job ORDER BY md5(id::text) LIMIT %(few)s);
UPDATE jobs_job SET state = 'paused', paused_at = now()
 WHERE id IN (SELECT id FROM jobs_job ORDER BY md5(id::text || 'paused') LIMIT 500);
UPDATE jobs_jobversion SET queue_id = %(queue)s
 WHERE id IN (SELECT id FROM jobs_jobversion ORDER BY md5(id::text || 'queue') LIMIT %(queued)s);
UPDATE jobs_jobversion SET priority = 9
 WHERE id IN (SELECT id FROM jobs_jobversion ORDER BY md5(id::text || 'priority') LIMIT %(queued)s);
UPDATE jobs_schedule SET next_instant = NULL, next_fire_at = NULL
 WHERE id IN (SELECT id FROM jobs_schedule ORDER BY md5(id::text || 'over') LIMIT %(over)s);
UPDATE jobs_execution SET state = 'failed', exit_code = 1, dead_letter = 'open'
 WHERE id IN (SELECT id FROM jobs_execution ORDER BY md5(id::text) LIMIT %(failed)s);
UPDATE jobs_execution SET state = 'running', ended_at = NULL, reason = NULL, exit_code = NULL
 WHERE id IN (SELECT id FROM jobs_execution WHERE state = 'succeeded' ORDER BY md5(id::text || 'run') LIMIT 1000);
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--executions", type=int, default=EXECUTIONS)
    options = parser.parse_args()
    result: dict[str, object] = {
        "benchmark": "listing",
        "through": "the view, in this process",
        "jobs": options.jobs,
        "executions": options.executions,
        **machine(),
    }
    with laboratory():
        staff, small, worker_id = _populate(options.jobs, options.executions)
        measured = {name: _measure(client, address) for name, client, address in _requests(staff, small, worker_id)}
    result["pages"] = {
        name: {
            "p50_ms": round(percentile(times, 0.5), 1),
            "p99_ms": round(percentile(times, 0.99), 1),
            "statements": statements,
            "rows": rows,
        }
        for name, (times, statements, rows) in measured.items()
    }
    worst = max(percentile(times, 0.99) for times, _, _ in measured.values())
    return conclude(
        result,
        {
            "worst_p99_ms": Target(worst, at_most=MAX_P99_MS),
            "most_statements": Target(max(count for _, count, _ in measured.values()), at_most=MAX_STATEMENTS),
        },
    )


def _populate(jobs: int, executions: int) -> tuple[APIClient, APIClient, UUID]:
    from django.contrib.auth.models import User
    from django.db import connection

    from jobs.models import Job, Queue
    from jobs.protocol import Offer
    from jobs.services.leases import register_worker

    say(f"{jobs} jobs")
    make_schedules(jobs)
    worker = register_worker(
        Offer(
            name="benchmark",
            instance=UUID(int=0),
            pool="default",
            host="here",
            slots=1000,
            cpu=1000.0,
            memory_mb=1_000_000,
            disk_mb=1_000_000,
            capabilities=["bash"],
            details={},
        )
    )
    say(f"{executions} executions")
    make_history(executions)
    say("what is rare")
    small = User.objects.create(username="small")
    parameters: dict[str, int | UUID] = {
        "small": small.pk,
        "few": SMALL_OWNER_JOBS,
        "queue": Queue.objects.create(name="rare").pk,
        "queued": max(jobs // 200, 1),
        "over": jobs // 5,
        "failed": executions // 50,
    }
    with connection.cursor() as cursor:
        for statement in SPREAD.split(";\n")[:-1]:
            cursor.execute(statement, parameters)
    settle_tables()
    assert Job.objects.filter(owner=small).count() == SMALL_OWNER_JOBS
    return _client("staff", is_staff=True), _client("small"), worker.worker_id


def _client(username: str, **fields: bool) -> APIClient:
    from django.conf import settings
    from django.contrib.auth.models import User
    from rest_framework.test import APIClient

    from jobs.services.tokens import new_secret, store_token

    settings.ALLOWED_HOSTS = ["testserver"]
    user, _ = User.objects.get_or_create(username=username, defaults=fields)
    secret = new_secret()
    store_token(owner=user, name="benchmark", secret=secret)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


def _requests(staff: APIClient, small: APIClient, worker_id: UUID) -> list[tuple[str, APIClient, str]]:
    lists = [
        *(f"jobs?status={s}" for s in ("paused", "running", "waiting", "scheduled", "succeeded", "failed", "missed")),
        "jobs",
        "jobs?queue=rare",
        "jobs?queue=rare&priority=9",
        "jobs?priority=9&status=failed",
        "jobs?owner=small",
        "jobs?owner=small&ordering=next_fire",
        "jobs?search=job",
        "jobs?search=b 1234",
        "jobs?search=nowhere",
        "jobs?deleted=true",
        *(f"jobs?ordering={o}" for o in ("name", "-name", "created", "next_fire", "-next_fire")),
        "jobs?ordering=name&status=failed",
        "executions",
        *(f"executions?status={s}" for s in ("running", "ready", "failed", "succeeded", "skipped")),
        f"executions?worker_id={worker_id}",
        f"executions?worker_id={worker_id}&status=failed",
        "executions?ordering=-ended_at&ended_to=2020-01-01T00:00:00Z",
        "executions?ordering=ended_at",
        "dead-letters",
        "workers",
    ]
    own = ["jobs", "jobs?status=failed", "jobs?search=job", "executions", "executions?status=failed", "dead-letters"]
    return [(each, staff, each) for each in lists] + [(f"few of one's own: {each}", small, each) for each in own]


def _measure(client: APIClient, address: str) -> tuple[list[float], int, int]:
    """The first page and those after it, so that not every round finds its rows in memory."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    say(address)
    times, most, rows = [], 0, 0
    first = following = f"/api/v1/{address}"
    for _ in range(ROUNDS):
        began = time.perf_counter()
        response = client.get(following)
        times.append((time.perf_counter() - began) * 1000)
        assert response.status_code == 200, response.content
        page = response.json()
        rows += len(page["results"])
        following = page["next"] or first
    with CaptureQueriesContext(connection) as queries:
        client.get(first)
    most = len(queries)
    return times, most, rows


if __name__ == "__main__":
    sys.exit(main())
