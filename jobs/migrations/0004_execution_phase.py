"""The phase of executions, and other names for the indexes and the key that it replaces.

The database operations are SQL: Django would build the models again for each of them.
"""

from django.db import migrations, models

# Adding a stored generated column would rewrite the table under a lock that blocks readers. The condition is evaluated before the
# function is called, so a move that keeps the phase costs no call. Null once succeeded: most rows need no update.
PHASE = """
ALTER TABLE jobs_execution ADD COLUMN phase varchar(16);
CREATE FUNCTION jobs_write_phase() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.phase := CASE WHEN NEW.state IN ('queued', 'claimed', 'running') THEN 'held'
                      ELSE nullif(NEW.state, 'succeeded') END;
    RETURN NEW;
END $$;
CREATE TRIGGER execution_phase_of_new BEFORE INSERT ON jobs_execution FOR EACH ROW EXECUTE FUNCTION jobs_write_phase();
CREATE TRIGGER execution_phase BEFORE UPDATE OF state ON jobs_execution FOR EACH ROW
    WHEN (NEW.phase IS DISTINCT FROM CASE WHEN NEW.state IN ('queued', 'claimed', 'running') THEN 'held'
                                          ELSE nullif(NEW.state, 'succeeded') END)
    EXECUTE FUNCTION jobs_write_phase();
"""
NO_PHASE = """
DROP TRIGGER execution_phase ON jobs_execution;
DROP TRIGGER execution_phase_of_new ON jobs_execution;
DROP FUNCTION jobs_write_phase();
ALTER TABLE jobs_execution DROP COLUMN phase;
"""
CHECKS = {
    "execution_state_known": "state IN ('backing_off', 'blocked', 'cancelled', 'claimed', 'failed', 'missed', 'queued',"
    " 'ready', 'running', 'skipped', 'succeeded', 'timed_out')",
    "execution_trigger_known": "trigger IN ('schedule', 'manual', 'dependency', 'backfill', 'retry')",
    "execution_reason_known": "reason IS NULL OR reason IN ('exit', 'timeout', 'out_of_memory', 'cancelled', 'lost',"
    " 'released', 'artifact_mismatch', 'artifact_unavailable', 'sandbox_error', 'secret_unavailable', 'deadline',"
    " 'catch_up', 'overlap', 'backlog', 'dependency')",
}
REPLACED = [
    "execution_candidates",
    "execution_lines",
    "execution_owner_lines",
    "execution_backing_off",
    "execution_blocked",
    "execution_held",
    "execution_unfinished_of_job",
    "execution_overdue",
    "execution_unsuccessful",
    "execution_unsuccessful_by_job",
]
RUN_KEY = "execution_once_per_run"
RENAME_KEY = "ALTER TABLE jobs_execution RENAME CONSTRAINT {} TO {}"
# Free space on a page for the versions of a row, which starts and ends.
STORAGE = "ALTER TABLE jobs_attempt SET (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02)"
NO_STORAGE = "ALTER TABLE jobs_attempt RESET (fillfactor, autovacuum_vacuum_scale_factor)"


class Migration(migrations.Migration):
    dependencies = [("jobs", "0003_seed")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(PHASE, NO_PHASE),
                *(
                    migrations.RunSQL(
                        f"ALTER TABLE jobs_execution DROP CONSTRAINT {name}",
                        f"ALTER TABLE jobs_execution ADD CONSTRAINT {name} CHECK ({condition})",
                    )
                    for name, condition in CHECKS.items()
                ),
                migrations.RunSQL(
                    RENAME_KEY.format(RUN_KEY, f"old_{RUN_KEY}"), RENAME_KEY.format(f"old_{RUN_KEY}", RUN_KEY)
                ),
                *(
                    migrations.RunSQL(
                        f"ALTER INDEX {name} RENAME TO old_{name}", f"ALTER INDEX old_{name} RENAME TO {name}"
                    )
                    for name in REPLACED
                ),
                migrations.RunSQL(STORAGE, NO_STORAGE),
            ],
            state_operations=[
                migrations.AddField(
                    "execution",
                    "phase",
                    models.CharField(
                        editable=False,
                        help_text="The state as indexes see it; a trigger writes it.",
                        max_length=16,
                        null=True,
                    ),
                ),
                *(migrations.RemoveConstraint("execution", name) for name in (*CHECKS, RUN_KEY)),
                migrations.AddConstraint(
                    "execution", models.UniqueConstraint(fields=["run_id", "job"], name=f"old_{RUN_KEY}")
                ),
                *(migrations.RenameIndex("execution", old_name=name, new_name=f"old_{name}") for name in REPLACED),
            ],
        ),
    ]
