"""Schedules as a large installation has them, made by SQL: a job each, three in four weekly crons, one in four daily.

None of them is due within the hours of a benchmark by itself; those that shall be are chosen all over the table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
from django.db import connection, transaction

if TYPE_CHECKING:
    from jobs.models import Artifact

Parameters = dict[str, int | float | str | list[str] | datetime | None]
CHUNK = 100_000
SPIKE = 1000
INTERVAL_SECONDS = 10
ZONES = ["UTC", "Europe/Paris", "America/New_York", "Asia/Tokyo"]
# When the nth of them is due next: in five hours to a day, or at a quarter of an hour in two to six days.
MOMENT = """date_trunc('hour', now()) + CASE WHEN n %% 4 = 0
           THEN make_interval(hours => 5, secs => n * 7919::bigint %% 64800)
           ELSE make_interval(days => 2, mins => (n * 7919::bigint %% 383 * 15)::int) END"""
# Ids that grow with time, as the application gives them.
FRESH = f"""
CREATE TEMPORARY TABLE fresh ON COMMIT DROP AS
SELECT n, n %% 4 = 0 AS daily, (%(zones)s::text[])[1 + n / 4 %% 4] AS zone,
       uuidv7() AS job_id, uuidv7() AS version_id, uuidv7() AS schedule_id, {MOMENT} AS moment
  FROM generate_series(%(first)s::int, %(last)s::int) n
"""  # noqa: S608 - constants of this module
JOBS = """
INSERT INTO jobs_job (id, owner_id, name, state, paused_note, current_version_id, created_at, updated_at)
SELECT job_id, %(owner)s, 'job ' || n, 'active', '', version_id, now(), now() FROM fresh
"""
VERSIONS = """
INSERT INTO jobs_jobversion (id, job_id, number, artifact_id, runtime, args, env, queue_id, priority, cpu, memory_mb,
    disk_mb, capabilities, timeout_seconds, retry, max_concurrency, overlap, delivery, created_at)
SELECT version_id, job_id, 1, %(artifact)s, %(runtime)s, '[]', '{}', q.id, 5, %(cpu)s, %(memory_mb)s, %(disk_mb)s, '{}',
       60, '{}', 1, 'queue', 'at_least_once', now()
  FROM fresh, jobs_queue q WHERE q.name = 'default'
"""
SCHEDULES = """
INSERT INTO jobs_schedule (id, job_id, kind, expression, timezone, starts_at, jitter_seconds, catch_up,
    excluded_dates, settled_count, quarantine_error, created_at, next_instant, next_fire_at)
SELECT schedule_id, job_id, CASE WHEN daily THEN 'every' ELSE 'cron' END,
       CASE WHEN daily THEN '86400' ELSE to_char(moment AT TIME ZONE zone, 'FMMI FMHH24') || ' * * '
            || extract(dow FROM moment AT TIME ZONE zone) END,
       zone, moment - interval '7 days', 0, 'latest', '{}', 0, '', now(), moment, moment
  FROM fresh
"""
# A salt instead of a random number: the planner must not evaluate it for rows that were left out.
CHOSEN = """
WITH picked AS MATERIALIZED (
    SELECT id FROM jobs_schedule WHERE next_fire_at > now() + interval '3 hours'
     ORDER BY md5(id::text || %(salt)s) LIMIT %(count)s
), chosen AS (SELECT id, row_number() OVER () - 1 AS nth FROM picked)
"""
DUE = f"""{CHOSEN}
UPDATE jobs_schedule s
   SET next_instant = %(moment)s, next_fire_at = %(moment)s
  FROM chosen WHERE chosen.id = s.id
"""  # noqa: S608
ARM = f"""{CHOSEN}
UPDATE jobs_schedule s
   SET kind = %(kind)s, expression = %(expression)s, timezone = 'UTC', starts_at = moment, ends_at = %(ends_at)s,
       next_instant = moment, next_fire_at = moment
  FROM chosen, LATERAL (SELECT %(first)s::timestamptz + make_interval(secs => nth * %(apart)s)) AS at (moment)
 WHERE chosen.id = s.id
"""  # noqa: S608
# Ended executions of the schedules that there are, in turn, each with its one attempt: ten million in ten days, which
# retention keeps.
HISTORY = """
WITH ended AS (
    INSERT INTO jobs_execution (id, job_id, version_id, schedule_id, queue_id, trigger, run_id, scheduled_for, state,
        attempt, tries_used, times_lost, worker_id, incarnation, rank, fired_at, ready_at, placed_at, published_at,
        claimed_at, started_at, ended_at, reason, exit_code)
    SELECT p.id, p.job_id, j.current_version_id, p.schedule_id, v.queue_id, 'schedule', p.id, p.moment, 'succeeded',
           1, 1, 0, w.id, w.incarnation, p.moment, p.moment, p.moment, p.moment, p.moment, p.moment, p.moment, p.moment,
           'exit', 0
      FROM (SELECT uuidv7(make_interval(secs => -86400 - 0.08 * n)) AS id, s.schedule_id, s.job_id,
                   now() - make_interval(secs => 86400 + 0.08 * n) AS moment
              FROM generate_series(%(first)s::int, %(last)s::int) n
              JOIN (SELECT id AS schedule_id, job_id, row_number() OVER () - 1 AS nth FROM jobs_schedule) s
                ON s.nth = n %% %(schedules)s) p
      JOIN jobs_job j ON j.id = p.job_id JOIN jobs_jobversion v ON v.id = j.current_version_id,
           (SELECT id, incarnation FROM jobs_worker LIMIT 1) w
    RETURNING id, worker_id, incarnation, ended_at)
INSERT INTO jobs_attempt (id, execution_id, number, worker_id, incarnation, placed_at, claimed_at, started_at, ended_at,
    reason, exit_code, error, log_truncated, cpu_seconds)
SELECT uuidv7(ended_at - now()), id, 1, worker_id, incarnation, ended_at, ended_at, ended_at, ended_at, 'exit', 0, '',
       false, 0.01
  FROM ended
"""


CHANGED = """
SELECT relid::regclass::text FROM pg_stat_user_tables
 WHERE n_mod_since_analyze > 0 OR n_ins_since_vacuum > 0 OR n_dead_tup > 0
"""


@dataclass(frozen=True, slots=True)
class Needs:
    """What every job asks for; by default next to nothing, because synthetic workers run nothing."""

    runtime: str = "bash"
    cpu: float = 0.001
    memory_mb: int = 1
    disk_mb: int = 0


def make_schedules(count: int, *, after: int = 0, artifact: Artifact | None = None, needs: Needs | None = None) -> None:
    """So many enabled schedules besides the first `after`."""
    artifact = artifact or _nothing()
    owner = artifact.owner
    for first in range(after + 1, after + count + 1, CHUNK):
        bounds: Parameters = {"first": first, "last": min(first + CHUNK - 1, after + count), "zones": ZONES}
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(FRESH, bounds)
            cursor.execute(JOBS, {"owner": owner.pk})
            cursor.execute(VERSIONS, {"artifact": artifact.pk, **asdict(needs or Needs())})
            cursor.execute(SCHEDULES)
    settle_tables()


def settle_tables() -> None:
    """What autovacuum would do in its own time, and else perhaps in the middle of a measurement."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(CHANGED)
        if changed := ", ".join(table for (table,) in cursor.fetchall()):
            cursor.execute(f"VACUUM (ANALYZE) {changed}")


def _nothing() -> Artifact:
    from django.contrib.auth.models import User

    from jobs.models import Artifact

    owner, _ = User.objects.get_or_create(username="benchmark")
    artifact, _ = Artifact.objects.get_or_create(owner=owner, sha256="0" * 64, defaults={"size": 1})
    return artifact


def make_history(superuser_url: str, count: int, *, after: int = 0) -> None:
    """Insert `count` ended executions after the first `after`; there must be a worker and schedules.

    Foreign keys are not checked, which takes half the time and a superuser.
    """
    from jobs.models import Schedule

    schedules = Schedule.objects.count()
    with psycopg.connect(superuser_url, autocommit=True) as superuser:
        superuser.execute("SET session_replication_role = replica")
        for first in range(after + 1, after + count + 1, CHUNK):
            last = min(first + CHUNK - 1, after + count)
            superuser.execute(HISTORY, {"first": first, "last": last, "schedules": schedules})
    settle_tables()


def make_due(count: int, *, salt: str, moment: datetime | None = None) -> None:
    """The next instant of so many schedules, chosen by the salt, is the moment, or else a minute that is just over."""
    moment = moment or datetime.now(UTC).replace(second=0, microsecond=0)
    _execute(DUE, {"count": count, "salt": salt, "moment": moment})


def arm_overdue(now: datetime) -> None:
    """One schedule that a beat finds due when it starts."""
    _arm(count=1, kind="every", expression="86400", first=now - timedelta(seconds=1))


def arm_spike(at: datetime) -> None:
    """Crons that share one minute, and so one second."""
    _arm(count=SPIKE, kind="cron", expression=f"{at.minute} {at.hour} * * *", first=at)


def arm_steady(first: datetime, *, per_second: int, seconds: int) -> None:
    """Schedules every ten seconds, evenly apart; their last instants are just before the end."""
    apart = 1 / per_second
    ends_at = first + timedelta(seconds=seconds - apart / 2)
    _arm(
        count=per_second * INTERVAL_SECONDS,
        kind="every",
        expression=str(INTERVAL_SECONDS),
        first=first,
        apart=apart,
        ends_at=ends_at,
    )


def next_minute(after: datetime) -> datetime:
    return after.replace(second=0, microsecond=0) + timedelta(minutes=1)


def _arm(
    *, count: int, kind: str, expression: str, first: datetime, apart: float = 0, ends_at: datetime | None = None
) -> None:
    parameters: Parameters = {
        "kind": kind,
        "expression": expression,
        "first": first,
        "apart": apart,
        "ends_at": ends_at,
    }
    _execute(ARM, {**parameters, "count": count, "salt": f"{kind} {expression}"})


def _execute(statement: str, parameters: Parameters) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
