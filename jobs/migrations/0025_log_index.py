"""Logs that can be searched and archived: how far each came, its text in segments, and the packs of the archive."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.contrib.postgres.operations import BtreeGinExtension, TrigramExtension
from django.db import migrations, models

import jobs.models.ids

SEGMENTS = """
CREATE TABLE jobs_logsegment (
    day date NOT NULL,
    execution_id uuid NOT NULL,
    attempt integer NOT NULL CHECK (attempt >= 0),
    first_sequence integer NOT NULL CHECK (first_sequence >= 0),
    stream varchar(6) NOT NULL CONSTRAINT log_segment_stream_known CHECK (stream IN ('stdout', 'stderr')),
    owner_id integer NOT NULL,
    job_id uuid NOT NULL,
    logged_from timestamptz NOT NULL,
    logged_to timestamptz NOT NULL,
    offsets integer[] NOT NULL,
    sequences integer[] NOT NULL,
    times timestamptz[] NOT NULL,
    carried integer NOT NULL CHECK (carried >= 0),
    text text NOT NULL,
    PRIMARY KEY (day, execution_id, attempt, first_sequence, stream)
) PARTITION BY RANGE (day);
CREATE TABLE jobs_logsegment_default PARTITION OF jobs_logsegment DEFAULT;
DO $$
DECLARE day date;
BEGIN
    FOR offset_days IN 0..14 LOOP
        day := (now() AT TIME ZONE 'UTC')::date + offset_days;
        EXECUTE format('CREATE TABLE jobs_logsegment_%s PARTITION OF jobs_logsegment FOR VALUES FROM (%L) TO (%L)',
                       to_char(day, 'YYYYMMDD'), day, day + 1);
    END LOOP;
END $$;
"""

# Those that were written before are indexed and archived as any others.
WRITTEN_BEFORE = """
INSERT INTO jobs_attemptlog (execution_id, attempt, day, owner_id, job_id)
SELECT a.execution_id, a.number, (a.claimed_at AT TIME ZONE 'UTC')::date, j.owner_id, e.job_id
  FROM jobs_attempt a
  JOIN jobs_execution e ON e.id = a.execution_id
  JOIN jobs_job j ON j.id = e.job_id
 WHERE EXISTS (SELECT FROM jobs_logchunk c
                WHERE c.day = (a.claimed_at AT TIME ZONE 'UTC')::date AND c.execution_id = a.execution_id
                  AND c.attempt = a.number)
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0024_execution_signal")]

    operations = [
        TrigramExtension(),
        BtreeGinExtension(),
        migrations.CreateModel(
            name="LogPack",
            fields=[
                ("id", models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("size", models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="AttemptLog",
            fields=[
                ("pk", models.CompositePrimaryKey("execution_id", "attempt", blank=True, editable=False, primary_key=True, serialize=False)),
                ("execution_id", models.UUIDField()),
                ("attempt", models.PositiveIntegerField()),
                ("day", models.DateField()),
                ("owner_id", models.IntegerField()),
                ("job_id", models.UUIDField()),
                ("indexed_to", models.IntegerField(db_default=-1, default=-1, help_text="The last sequence that can be searched.")),
                ("stdout_carry", models.TextField(blank=True, db_default="", default="")),
                ("stderr_carry", models.TextField(blank=True, db_default="", default="")),
                ("pack", models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name="logs", to="jobs.logpack")),
                ("pack_offset", models.BigIntegerField(null=True)),
                ("pack_length", models.BigIntegerField(null=True)),
                ("settled_at", models.DateTimeField(help_text="Since when it is complete, searchable and archived.", null=True)),
            ],
            options={
                "indexes": [models.Index(condition=models.Q(("settled_at__isnull", True)), fields=["day"], name="attempt_log_unsettled")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("pack__isnull", True), ("pack_length__isnull", True), ("pack_offset__isnull", True))
                        | models.Q(("pack__isnull", False), ("pack_length__gt", 0), ("pack_offset__gte", 0)),
                        name="attempt_log_place_whole",
                    )
                ],
            },
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(SEGMENTS, "DROP TABLE jobs_logsegment")],
            state_operations=[
                migrations.CreateModel(
                    name="LogSegment",
                    fields=[
                        ("pk", models.CompositePrimaryKey("day", "execution_id", "attempt", "first_sequence", "stream", blank=True, editable=False, primary_key=True, serialize=False)),
                        ("day", models.DateField()),
                        ("execution_id", models.UUIDField()),
                        ("attempt", models.PositiveIntegerField()),
                        ("first_sequence", models.PositiveIntegerField()),
                        ("stream", models.CharField(choices=[("stdout", "stdout"), ("stderr", "stderr")], max_length=6)),
                        ("owner_id", models.IntegerField()),
                        ("job_id", models.UUIDField()),
                        ("logged_from", models.DateTimeField()),
                        ("logged_to", models.DateTimeField()),
                        ("offsets", django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)),
                        ("sequences", django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)),
                        ("times", django.contrib.postgres.fields.ArrayField(base_field=models.DateTimeField(), size=None)),
                        ("carried", models.PositiveIntegerField(help_text="So many characters of the text end the segment before.")),
                        ("text", models.TextField()),
                    ],
                ),
            ],
        ),
        migrations.RunSQL(WRITTEN_BEFORE, migrations.RunSQL.noop),
    ]
