"""What benchmarks run in: engines of their own in a temporary directory, a migrated database, and rows made by SQL."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import django

from scheduler_project.embedded.engines import Engines

JOBS = """
WITH job AS (
    INSERT INTO jobs_job (id, owner_id, name, state, paused_note, created_at, updated_at)
    SELECT gen_random_uuid(), %(owner)s, 'job ' || n, 'active', '', now(), now() FROM generate_series(1, %(jobs)s) n
    RETURNING id)
INSERT INTO jobs_jobversion (id, job_id, number, artifact_id, runtime, args, env, queue_id, priority, cpu, memory_mb,
    disk_mb, capabilities, timeout_seconds, retry, max_concurrency, overlap, delivery, created_at)
SELECT gen_random_uuid(), job.id, 1, %(artifact)s, 'bash', '[]', '{}', q.id, 5, 0.001, 1, 0, '{}', 60, '{}', NULL,
       'queue', 'at_least_once', now()
  FROM job, jobs_queue q WHERE q.name = 'default'
"""
SCHEDULES = """
WITH fresh AS (
    UPDATE jobs_job j SET current_version_id = v.id FROM jobs_jobversion v
     WHERE v.job_id = j.id AND j.current_version_id IS NULL
    RETURNING j.id)
INSERT INTO jobs_schedule (id, job_id, kind, expression, timezone, starts_at, jitter_seconds, catch_up,
    excluded_dates, settled_count, quarantine_error, created_at, next_instant, next_fire_at)
SELECT gen_random_uuid(), fresh.id, 'cron', (n %% 60) || ' ' || (n %% 24) || ' * * *', 'UTC', now(), 0, 'latest',
       '{}', 0, '', now(), later, later
  FROM fresh, generate_series(1, %(each)s) n,
       LATERAL (SELECT date_trunc('day', now()) + make_interval(days => 2, mins => (n %% 1440)::int)) AS t (later)
"""
DUE = """
WITH chosen AS MATERIALIZED (
    SELECT id FROM jobs_schedule WHERE next_fire_at > now() + interval '1 hour' ORDER BY md5(id::text) LIMIT %s)
UPDATE jobs_schedule s
   SET next_instant = date_trunc('minute', now()), next_fire_at = date_trunc('minute', now())
  FROM chosen WHERE chosen.id = s.id
"""


@contextmanager
def laboratory() -> Iterator[Engines]:
    """Django is ready to be used inside; everything is gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="punctual-benchmark-"))
    engines = Engines(directory / "engines")
    try:
        engines.start()
        os.environ.update(
            engines.environment(),
            DJANGO_SETTINGS_MODULE="scheduler_project.settings",
            PUNCTUAL_ENV="development",
            PUNCTUAL_LOG_LEVEL="WARNING",
            PUNCTUAL_WORKER_STATE_DIR=str(directory / "worker"),
        )
        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield engines
    finally:
        engines.stop()
        shutil.rmtree(directory, ignore_errors=True)


def make_schedules(count: int) -> None:
    """So many enabled schedules, none due before the day after tomorrow, a thousand to a job."""
    from django.contrib.auth.models import User
    from django.db import connection

    from jobs.models import Artifact

    owner, _ = User.objects.get_or_create(username="benchmark")
    artifact, _ = Artifact.objects.get_or_create(owner=owner, sha256="0" * 64, defaults={"size": 1})
    each = min(count, 1000)
    with connection.cursor() as cursor:
        cursor.execute(JOBS, {"owner": owner.pk, "artifact": artifact.pk, "jobs": max(1, count // each)})
        cursor.execute(SCHEDULES, {"each": each})
        cursor.execute("ANALYZE")


def make_due(count: int) -> None:
    """The next instant of so many schedules, spread over all, becomes a minute that is just over."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(DUE, [count])
