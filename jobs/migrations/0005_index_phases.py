"""Phases of existing executions, the indexes by phase, built while everything runs, and no more foreign keys.

Every operation can be repeated after an interruption. The database operations are SQL: Django would build the models again
for each of them.
"""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F, Q

BATCH = 5000
# Rows that are written meanwhile get their phase from the trigger, which this statement fires as well.
WRITE_PHASES = """
WITH page AS MATERIALIZED (
    SELECT id FROM jobs_execution
     WHERE id > %(after)s AND state <> 'succeeded' AND phase IS NULL
     ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE
), written AS (
    UPDATE jobs_execution e SET state = e.state FROM page WHERE e.id = page.id)
SELECT id FROM page ORDER BY id DESC LIMIT 1
"""
FIRST_ID = "00000000-0000-0000-0000-000000000000"
IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
RUN_KEY = "execution_once_per_run"
UNSUCCESSFUL = ["cancelled", "failed", "missed", "skipped", "timed_out"]
UNSUCCESSFUL_SQL = "phase IN ('cancelled', 'failed', 'missed', 'skipped', 'timed_out')"
# The columns and the condition, in SQL and as the model has them.
INDEXES = [
    (
        "(queue_id, rank, id) WHERE phase = 'ready' AND job_line IS NULL AND owner_line IS NULL",
        models.Index(
            fields=["queue", "rank", "id"],
            name="execution_candidates",
            condition=Q(phase="ready", job_line__isnull=True, owner_line__isnull=True),
        ),
    ),
    (
        "(job_id, job_line, rank, id) WHERE phase = 'ready' AND job_line IS NOT NULL",
        models.Index(
            fields=["job", "job_line", "rank", "id"],
            name="execution_lines",
            condition=Q(phase="ready", job_line__isnull=False),
        ),
    ),
    (
        "(owner_line, rank, id) WHERE phase = 'ready' AND owner_line IS NOT NULL",
        models.Index(
            fields=["owner_line", "rank", "id"],
            name="execution_owner_lines",
            condition=Q(phase="ready", owner_line__isnull=False),
        ),
    ),
    (
        "(retry_at) WHERE phase = 'backing_off'",
        models.Index(fields=["retry_at"], name="execution_backing_off", condition=Q(phase="backing_off")),
    ),
    (
        "(id) WHERE phase = 'blocked'",
        models.Index(fields=["id"], name="execution_blocked", condition=Q(phase="blocked")),
    ),
    (
        "(worker_id, incarnation) WHERE phase = 'held'",
        models.Index(fields=["worker", "incarnation"], name="execution_held", condition=Q(phase="held")),
    ),
    (
        "(job_id, job_line) WHERE ended_at IS NULL",
        models.Index(
            fields=["job", "job_line"], name="execution_unfinished_of_job", condition=Q(ended_at__isnull=True)
        ),
    ),
    (
        "(deadline_at) WHERE deadline_at IS NOT NULL AND ended_at IS NULL",
        models.Index(
            fields=["deadline_at"],
            name="execution_overdue",
            condition=Q(deadline_at__isnull=False, ended_at__isnull=True),
        ),
    ),
    (
        f"(phase, id DESC) WHERE {UNSUCCESSFUL_SQL}",
        models.Index(fields=["phase", "-id"], name="execution_unsuccessful", condition=Q(phase__in=UNSUCCESSFUL)),
    ),
    (
        f"(phase, job_id DESC) WHERE {UNSUCCESSFUL_SQL}",
        models.Index(
            fields=["phase", "-job"], name="execution_unsuccessful_by_job", condition=Q(phase__in=UNSUCCESSFUL)
        ),
    ),
]
# Table, column, the table it references, the name of the constraint.
KEYS = [
    ("jobs_execution", "job_id", "jobs_job", "jobs_execution_job_id_f1a67db0_fk_jobs_job_id"),
    ("jobs_execution", "version_id", "jobs_jobversion", "jobs_execution_version_id_65448c98_fk_jobs_jobversion_id"),
    ("jobs_execution", "schedule_id", "jobs_schedule", "jobs_execution_schedule_id_a7c46ef9_fk_jobs_schedule_id"),
    ("jobs_execution", "queue_id", "jobs_queue", "jobs_execution_queue_id_55df8c99_fk_jobs_queue_id"),
    ("jobs_execution", "worker_id", "jobs_worker", "jobs_execution_worker_id_265c1864_fk_jobs_worker_id"),
    ("jobs_execution", "pinned_worker_id", "jobs_worker", "jobs_execution_pinned_worker_id_3e9e8bc3_fk_jobs_worker_id"),
    ("jobs_attempt", "execution_id", "jobs_execution", "jobs_attempt_execution_id_bc831d63_fk_jobs_execution_id"),
    ("jobs_attempt", "worker_id", "jobs_worker", "jobs_attempt_worker_id_fbf016f1_fk_jobs_worker_id"),
]
DROP_KEY = "SET LOCAL lock_timeout = '2s'; ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}"
ADD_KEY = (
    "SET LOCAL lock_timeout = '2s'; ALTER TABLE {table} ADD CONSTRAINT {name} FOREIGN KEY ({column})"
    " REFERENCES {target} (id) DEFERRABLE INITIALLY DEFERRED"
)
UNCHECKED = {"db_constraint": False, "db_index": False}
PROTECT, CASCADE = django.db.models.deletion.PROTECT, django.db.models.deletion.CASCADE
FIELDS = [
    ("execution", "job", models.ForeignKey("jobs.job", CASCADE, related_name="executions", **UNCHECKED)),
    ("execution", "version", models.ForeignKey("jobs.jobversion", PROTECT, **UNCHECKED)),
    (
        "execution",
        "schedule",
        models.ForeignKey("jobs.schedule", django.db.models.deletion.SET_NULL, null=True, **UNCHECKED),
    ),
    ("execution", "queue", models.ForeignKey("jobs.queue", PROTECT, **UNCHECKED)),
    ("execution", "worker", models.ForeignKey("jobs.worker", PROTECT, null=True, **UNCHECKED)),
    (
        "execution",
        "pinned_worker",
        models.ForeignKey(
            "jobs.worker",
            PROTECT,
            null=True,
            related_name="pinned_executions",
            help_text="The only worker that may run it; empty: any.",
            **UNCHECKED,
        ),
    ),
    ("attempt", "execution", models.ForeignKey("jobs.execution", CASCADE, related_name="attempts", **UNCHECKED)),
    ("attempt", "worker", models.ForeignKey("jobs.worker", PROTECT, **UNCHECKED)),
]


class BuildIndex(migrations.RunSQL):
    """Keeps an index that was built before an interruption, and builds again what it left unfinished."""

    def __init__(self, name: str, definition: str, *, unique: str = "") -> None:
        super().__init__(
            f"CREATE {unique} INDEX CONCURRENTLY {name} ON jobs_execution {definition}",
            f"DROP INDEX CONCURRENTLY IF EXISTS {name}",
        )
        self.name = name

    def database_forwards(self, app_label, schema_editor, from_state, to_state):  # type: ignore[no-untyped-def]
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(IS_VALID, [self.name])
            found = cursor.fetchone()
        if found == (True,):
            return
        if found is not None:
            schema_editor.execute(f"DROP INDEX CONCURRENTLY {self.name}")
        super().database_forwards(app_label, schema_editor, from_state, to_state)


class WritePhases(migrations.RunSQL):
    """Writes the phases page by page, each in a transaction of its own."""

    def __init__(self) -> None:
        super().__init__(WRITE_PHASES, migrations.RunSQL.noop)

    def database_forwards(self, app_label, schema_editor, from_state, to_state):  # type: ignore[no-untyped-def]
        last = (FIRST_ID,)
        with schema_editor.connection.cursor() as cursor:
            while last is not None:
                cursor.execute(WRITE_PHASES, {"after": last[0], "limit": BATCH})
                last = cursor.fetchone()


class Migration(migrations.Migration):
    # A concurrent build cannot be part of a transaction.
    atomic = False
    dependencies = [("jobs", "0004_execution_phase")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                WritePhases(),
                *(BuildIndex(index.name, definition) for definition, index in INDEXES),
                BuildIndex(RUN_KEY, "(run_id, job_id) WHERE run_id <> id", unique="UNIQUE"),
                *(
                    migrations.RunSQL(
                        DROP_KEY.format(table=table, name=name),
                        ADD_KEY.format(table=table, name=name, column=column, target=target),
                    )
                    for table, column, target, name in KEYS
                ),
            ],
            state_operations=[
                *(migrations.AddIndex("execution", index) for _, index in INDEXES),
                migrations.AddConstraint(
                    "execution",
                    models.UniqueConstraint(fields=["run_id", "job"], name=RUN_KEY, condition=~Q(run_id=F("id"))),
                ),
                *(migrations.AlterField(model, name, field) for model, name, field in FIELDS),
            ],
        ),
    ]
