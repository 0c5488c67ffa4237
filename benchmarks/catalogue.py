"""Jobs and executions of every kind, made by SQL: what lists find their rows among.

Everything is told by its number, so that a size gives the same rows each time: owners with half of all jobs, with one
in a hundred and with a few; rare queues, priorities, states and words in names, spread over the whole time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection

from jobs.domain.worker_protocol import WorkerOffer
from jobs.fleet.leases import register_worker
from jobs.models import Artifact, Membership, Queue, Team, Worker

TABLES = ("jobs_job", "jobs_jobversion", "jobs_schedule", "jobs_execution", "jobs_attempt")
WORKERS = 20
OTHERS = 50
FEW_JOBS = 200
RARE_WORD = "zebra"
RARE_QUEUE = "rare"
CHUNK = 250_000
# `shuffled` is every number once, in no order that any column has: no filter's rows lie together.
MADE = """
CREATE TEMPORARY TABLE made ON COMMIT PRESERVE ROWS AS
SELECT n, n * 7919::bigint %% %(jobs)s AS shuffled, now() - make_interval(secs => (%(jobs)s - n)) AS moment,
       uuidv7(make_interval(secs => n - %(jobs)s)) AS job_id, uuidv7(make_interval(secs => n - %(jobs)s)) AS version_id,
       uuidv7(make_interval(secs => n - %(jobs)s)) AS schedule_id
  FROM generate_series(0, %(jobs)s - 1) n
"""
JOBS = """
INSERT INTO jobs_job (id, owner_id, name, state, paused_at, paused_note, current_version_id, created_at, updated_at,
    deleted_at)
SELECT job_id,
       CASE WHEN shuffled < %(few_jobs)s THEN %(few)s WHEN shuffled %% 100 = 7 THEN %(some)s
            WHEN n %% 2 = 0 THEN %(many)s ELSE (%(others)s::int[])[1 + n %% array_length(%(others)s::int[], 1)] END,
       (ARRAY['nightly', 'hourly', 'weekly', 'Monthly'])[1 + n %% 4] || ' '
           || (ARRAY['report', 'backup', 'import', 'export', 'clean-up', 'mail', 'sync'])[1 + n %% 7] || ' '
           || CASE WHEN shuffled %% 10000 = 3 THEN %(word)s || ' ' ELSE '' END || n,
       state, CASE WHEN state = 'paused' THEN moment END, '', version_id, moment, moment,
       CASE WHEN shuffled %% 50 = 11 THEN moment END
  FROM made, LATERAL (SELECT CASE WHEN shuffled %% 50 IN (11, 12) THEN 'cancelled'
                                  WHEN shuffled %% 1000 = 13 THEN 'paused' ELSE 'active' END) AS s (state)
"""
VERSIONS = """
INSERT INTO jobs_jobversion (id, job_id, number, artifact_id, runtime, args, env, queue_id, priority, cpu, memory_mb,
    disk_mb, capabilities, timeout_seconds, retry, max_concurrency, overlap, delivery, created_at)
SELECT version_id, job_id, 1, %(artifact)s, 'bash', '[]', '{}',
       CASE WHEN shuffled %% 200 = 17 THEN %(rare)s::uuid ELSE %(default)s::uuid END,
       CASE WHEN shuffled %% 200 = 19 THEN 9 ELSE n %% 6 END,
       0.1, 16, 1, '{}', 60, '{}', 1, 'queue', 'at_least_once', moment
  FROM made
"""
SCHEDULES = """
INSERT INTO jobs_schedule (id, job_id, kind, expression, timezone, starts_at, jitter_seconds, catch_up,
    excluded_dates, settled_count, quarantine_error, created_at, next_instant, next_fire_at)
SELECT schedule_id, job_id, CASE WHEN n %% 4 = 0 THEN 'every' ELSE 'cron' END,
       CASE WHEN n %% 4 = 0 THEN '86400' ELSE format('%%s %%s * * %%s', n %% 60, n %% 24, n %% 7) END, 'UTC', moment,
       0, 'latest', '{}', 0, '', moment, following, following
  FROM made, LATERAL (SELECT CASE WHEN shuffled %% 10 = 1 OR shuffled %% 50 IN (11, 12) THEN NULL
                                  ELSE now() + make_interval(secs => shuffled) END) AS f (following)
 WHERE shuffled %% 10 > 0
"""
EXECUTIONS = """
WITH numbered AS (
    SELECT e.shuffled, m.job_id, m.version_id, m.shuffled AS job_number,
           uuidv7(make_interval(secs => -age)) AS id, now() - make_interval(secs => age) AS moment,
           (%(workers)s::uuid[])[1 + e.shuffled %% array_length(%(workers)s::uuid[], 1)] AS worker_id,
           CASE WHEN age < 50 THEN 'blocked' WHEN age < 100 THEN 'backing_off' WHEN age < 400 THEN 'ready'
                WHEN age < 500 THEN 'queued' WHEN age < 1000 THEN 'running'
                WHEN kind < 4 THEN 'failed' WHEN kind = 4 THEN 'timed_out' WHEN kind = 5 THEN 'cancelled'
                WHEN kind < 8 THEN 'missed' WHEN kind < 10 THEN 'skipped' ELSE 'succeeded' END AS state
      FROM generate_series(%(first)s::int, %(last)s::int) n,
           LATERAL (SELECT n * 7907::bigint %% %(executions)s, %(executions)s - n) AS e (shuffled, age)
      JOIN made m ON m.n = e.shuffled %% %(jobs)s,
           LATERAL (SELECT (m.n + e.shuffled / %(jobs)s * 37) %% 200) AS k (kind)
), stored AS (
    INSERT INTO jobs_execution (id, job_id, version_id, queue_id, trigger, run_id, scheduled_for, state, attempt,
        tries_used, times_lost, worker_id, incarnation, rank, fired_at, ready_at, retry_at, placed_at, published_at,
        claimed_at, started_at, ended_at, reason, exit_code, dead_letter)
    SELECT id, job_id, version_id, CASE WHEN job_number %% 200 = 17 THEN %(rare)s::uuid ELSE %(default)s::uuid END,
           CASE WHEN late THEN 'backfill' ELSE 'manual' END, id,
           CASE WHEN late THEN moment - interval '30 days' ELSE moment END, state,
           held::int, held::int, 0, CASE WHEN held THEN worker_id END, CASE WHEN held THEN 1 END, moment, moment,
           CASE WHEN state <> 'blocked' THEN moment END, CASE WHEN state = 'backing_off' THEN now() END,
           CASE WHEN held THEN moment END, CASE WHEN held THEN moment END,
           CASE WHEN held AND state <> 'queued' THEN moment END, CASE WHEN held AND state <> 'queued' THEN moment END,
           ended_at, CASE WHEN ended_at IS NOT NULL THEN 'exit' END,
           CASE state WHEN 'succeeded' THEN 0 WHEN 'failed' THEN 1 END, CASE WHEN state = 'failed' THEN 'open' END
      FROM numbered, LATERAL (
        SELECT state IN ('queued', 'running', 'succeeded', 'failed', 'timed_out', 'cancelled') AS held,
               shuffled %% 1000 = 21 AS late,
               CASE WHEN state NOT IN ('blocked', 'backing_off', 'ready', 'queued', 'running')
                    THEN least(moment + CASE WHEN shuffled %% 5000 = 23 THEN interval '5 hours' ELSE interval '1 second'
                               END, now()) END AS ended_at) AS t
    RETURNING id, worker_id, claimed_at, ended_at, exit_code
)
INSERT INTO jobs_attempt (id, execution_id, number, worker_id, incarnation, placed_at, claimed_at, started_at, ended_at,
    reason, exit_code, error, log_truncated)
SELECT uuidv7(claimed_at - now()), id, 1, worker_id, 1, claimed_at, claimed_at, claimed_at, ended_at,
       CASE WHEN ended_at IS NOT NULL THEN 'exit' END, exit_code, '', false
  FROM stored WHERE claimed_at IS NOT NULL
"""


TEAM, SHARED_JOBS = "shared", 10_000
SHARED = """
UPDATE jobs_job SET team_id = %(team)s WHERE id IN (
    SELECT id FROM jobs_job WHERE owner_id = %(owner)s ORDER BY md5(id::text) LIMIT %(count)s)
"""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Who owns how much, and what there is little of."""

    many: User
    some: User
    few: User
    worker_id: UUID
    rare_queue: str


def find_catalogue() -> Catalogue | None:
    """One that was made before, in a database that was kept."""
    users = {user.username: user for user in User.objects.filter(username__in=["many", "some", "few"])}
    if not users:
        return None
    worker_id = Worker.objects.get(name="worker-0").pk
    return Catalogue(users["many"], users["some"], users["few"], worker_id, RARE_QUEUE)


def make_catalogue(jobs: int, executions: int) -> Catalogue:
    """In tables without jobs; jobs by the thousand, at least so many executions."""
    many, some, few, *others = (
        User.objects.create(username=name) for name in ("many", "some", "few", *(f"other-{n}" for n in range(OTHERS)))
    )
    rare, default = Queue.objects.create(name=RARE_QUEUE), Queue.objects.get(name="default")
    workers = [_worker(number) for number in range(WORKERS)]
    parameters: dict[str, object] = {
        "jobs": jobs,
        "executions": executions,
        "many": many.pk,
        "some": some.pk,
        "few": few.pk,
        "others": [user.pk for user in others],
        "few_jobs": FEW_JOBS,
        "word": RARE_WORD,
        "artifact": Artifact.objects.create(owner=many, sha256="0" * 64, size=1).pk,
        "rare": rare.pk,
        "default": default.pk,
        "workers": workers,
    }
    with connection.cursor() as cursor:
        # Not within the bounds that a registration has just set, and without telling anybody of these ends.
        cursor.execute("SELECT set_config('statement_timeout', '0', true)")
        cursor.execute("ALTER TABLE jobs_execution DISABLE TRIGGER USER")
        for statement in (MADE, "CREATE INDEX ON made (n)", JOBS, VERSIONS, SCHEDULES, "ANALYZE made"):
            cursor.execute(statement, parameters)  # type: ignore[arg-type]
        for first in range(1, executions + 1, CHUNK):
            bounds = {"first": first, "last": min(first + CHUNK - 1, executions)}
            cursor.execute(EXECUTIONS, parameters | bounds)  # type: ignore[arg-type]
        cursor.execute("DROP TABLE made")
    return Catalogue(many, some, few, workers[0], RARE_QUEUE)


def share_jobs(catalogue: Catalogue) -> User:
    """Who has no jobs, but is in a team that some of another's are shared with; done once."""
    mate, is_new = User.objects.get_or_create(username="mate")
    if is_new:
        team = Team.objects.create(name=TEAM)
        Membership.objects.create(team=team, user=mate)
        with connection.cursor() as cursor:
            cursor.execute(SHARED, {"team": team.pk, "owner": catalogue.many.pk, "count": SHARED_JOBS})
            cursor.execute("VACUUM (ANALYZE) jobs_job")
    return mate


def _worker(number: int) -> UUID:
    offer = WorkerOffer(
        name=f"worker-{number}",
        instance=UUID(int=number),
        pool="default",
        host="here",
        slots=1000,
        cpu=1000.0,
        memory_mb=1_000_000,
        disk_mb=1_000_000,
        capabilities=["bash"],
        details={},
    )
    return register_worker(offer).worker_id


@contextmanager
def indexed_afterwards() -> Iterator[None]:
    """Millions of rows go into bare tables several times as fast; whatever is on them is made anew at the end."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE conrelid = ANY(%s::regclass[]) AND contype IN ('f', 'u') ORDER BY contype DESC",
            [list(TABLES)],
        )
        constraints = cursor.fetchall()
        for table, name, _ in constraints:
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        cursor.execute(
            "SELECT indexrelid::regclass, pg_get_indexdef(indexrelid) FROM pg_index"
            " WHERE indrelid = ANY(%s::regclass[]) AND NOT indisprimary",
            [list(TABLES)],
        )
        indexes = cursor.fetchall()
        for name, _ in indexes:
            cursor.execute(f"DROP INDEX {name}")
    yield
    with connection.cursor() as cursor:
        cursor.execute("SET maintenance_work_mem = '512MB'")
        for _, definition in indexes:
            cursor.execute(definition)
        for table, name, definition in constraints:
            cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
        cursor.execute("RESET maintenance_work_mem")
        cursor.execute("ALTER TABLE jobs_execution ENABLE TRIGGER USER")
        cursor.execute(f"VACUUM (ANALYZE) {', '.join(TABLES)}")
