"""Drop the indexes that name states, which only statements of earlier releases use: now claiming writes no index."""

from django.db import migrations

UNFINISHED = "state IN ('backing_off', 'blocked', 'claimed', 'queued', 'ready', 'running')"
UNSUCCESSFUL = "state IN ('cancelled', 'failed', 'missed', 'skipped', 'timed_out')"
DROPPED = {
    "execution_unclaimed": "(placed_at) WHERE placed_at IS NOT NULL AND state = 'queued'",
    "old_execution_candidates": (
        "(queue_id, rank, id) WHERE job_line IS NULL AND owner_line IS NULL AND state = 'ready'"
    ),
    "old_execution_lines": "(job_id, job_line, rank, id) WHERE job_line IS NOT NULL AND state = 'ready'",
    "old_execution_owner_lines": "(owner_line, rank, id) WHERE owner_line IS NOT NULL AND state = 'ready'",
    "old_execution_backing_off": "(retry_at) WHERE state = 'backing_off'",
    "old_execution_blocked": "(id) WHERE state = 'blocked'",
    "old_execution_held": "(worker_id, incarnation) WHERE state IN ('queued', 'claimed', 'running')",
    "old_execution_unfinished_of_job": f"(job_id, job_line) WHERE {UNFINISHED}",
    "old_execution_overdue": (
        "(deadline_at) WHERE deadline_at IS NOT NULL AND state IN ('backing_off', 'blocked', 'queued', 'ready')"
    ),
    "old_execution_unsuccessful": f"(state, id DESC) WHERE {UNSUCCESSFUL}",
    "old_execution_unsuccessful_by_job": f"(state, job_id DESC) WHERE {UNSUCCESSFUL}",
}
DROP_KEY = (
    "SET LOCAL lock_timeout = '2s'; ALTER TABLE jobs_execution DROP CONSTRAINT IF EXISTS old_execution_once_per_run"
)
ADD_KEY = (
    "SET LOCAL lock_timeout = '2s';"
    " ALTER TABLE jobs_execution ADD CONSTRAINT old_execution_once_per_run UNIQUE (run_id, job_id)"
)


class Migration(migrations.Migration):
    # Indexes are dropped while everything runs.
    atomic = False
    dependencies = [("jobs", "0005_index_phases")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                *(
                    migrations.RunSQL(
                        f"DROP INDEX CONCURRENTLY IF EXISTS {name}",
                        f"CREATE INDEX CONCURRENTLY {name} ON jobs_execution {definition}",
                    )
                    for name, definition in DROPPED.items()
                ),
                migrations.RunSQL(DROP_KEY, ADD_KEY),
            ],
            state_operations=[
                *(migrations.RemoveIndex("execution", name) for name in DROPPED),
                migrations.RemoveConstraint("execution", "old_execution_once_per_run"),
            ],
        ),
    ]
