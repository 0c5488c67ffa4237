"""Segments with their indexes, how far the index of the logs reaches, and the system task that makes it."""

import django.contrib.postgres.fields
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

TASK, EVERY_SECONDS = "jobs.index_logs", 5

# There are no segments yet: nothing has written any before this.
# MAIN: what is compressed stays beside its row, where a search that goes from one to the next finds it.
SEGMENTS = """
ALTER TABLE jobs_logsegment DROP CONSTRAINT jobs_logsegment_pkey;
ALTER TABLE jobs_logsegment ADD COLUMN part integer NOT NULL CHECK (part >= 0);
ALTER TABLE jobs_logsegment ADD PRIMARY KEY (day, execution_id, attempt, first_sequence, part);
ALTER TABLE jobs_logsegment ADD COLUMN folded text COLLATE "C";
ALTER TABLE jobs_logsegment ALTER COLUMN text SET STORAGE MAIN;
ALTER TABLE jobs_logsegment ALTER COLUMN folded SET STORAGE MAIN;
"""
SEGMENTS_BEFORE = """
TRUNCATE jobs_logsegment;
ALTER TABLE jobs_logsegment DROP CONSTRAINT jobs_logsegment_pkey;
ALTER TABLE jobs_logsegment DROP COLUMN part;
ALTER TABLE jobs_logsegment ADD PRIMARY KEY (day, execution_id, attempt, first_sequence, stream);
ALTER TABLE jobs_logsegment DROP COLUMN folded;
"""
# Made for one table and inherited by the partition of every day.
TRIGRAMS = """
CREATE INDEX log_segment_trigrams ON jobs_logsegment
 USING gin (owner_id, job_id, (coalesce(folded, lower(text COLLATE "C"))) gin_trgm_ops)
"""


def create_indexing(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    tasks = apps.get_model("django_celery_beat", "PeriodicTask").objects
    # Found by the task: one that was renamed, disabled or given another interval stays as it is.
    if not tasks.filter(task=TASK).exists():
        intervals = apps.get_model("django_celery_beat", "IntervalSchedule").objects
        given = {"every": EVERY_SECONDS, "period": "seconds"}
        interval = intervals.filter(**given).first() or intervals.create(**given)
        # One that waited for its interval is followed by the next: no pile of them after the workers were away.
        tasks.create(name="Index logs for searching", task=TASK, interval=interval, expire_seconds=EVERY_SECONDS)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0025_log_index"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(SEGMENTS, SEGMENTS_BEFORE)],
            state_operations=[
                migrations.DeleteModel(name="LogSegment"),
                migrations.CreateModel(
                    name="LogSegment",
                    fields=[
                        ("pk", models.CompositePrimaryKey("day", "execution_id", "attempt", "first_sequence", "part", blank=True, editable=False, primary_key=True, serialize=False)),
                        ("day", models.DateField()),
                        ("execution_id", models.UUIDField()),
                        ("attempt", models.PositiveIntegerField()),
                        ("first_sequence", models.PositiveIntegerField()),
                        ("part", models.PositiveIntegerField(help_text="Which of the segments that begin in this chunk.")),
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
                        ("folded", models.TextField(db_collation="C", null=True)),
                    ],
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="logsegment",
            index=models.Index(fields=["owner_id", "day", "execution_id", "attempt", "first_sequence", "part"], name="log_segment_by_owner"),
        ),
        migrations.AddIndex(
            model_name="logsegment",
            index=models.Index(fields=["job_id", "day", "execution_id", "attempt", "first_sequence", "part"], name="log_segment_by_job"),
        ),
        migrations.RunSQL(TRIGRAMS, "DROP INDEX log_segment_trigrams"),
        migrations.RemoveField(model_name="attemptlog", name="stdout_carry"),
        migrations.RemoveField(model_name="attemptlog", name="stderr_carry"),
        migrations.AddField(model_name="attemptlog", name="stdout_carry", field=models.BinaryField(db_default=b"", default=b"")),
        migrations.AddField(model_name="attemptlog", name="stderr_carry", field=models.BinaryField(db_default=b"", default=b"")),
        migrations.AddField(
            model_name="attemptlog",
            name="indexed_at",
            field=models.DateTimeField(help_text="Since when all of it can be searched, to its end.", null=True),
        ),
        migrations.AddIndex(
            model_name="attemptlog",
            index=models.Index(condition=models.Q(("indexed_at__isnull", True)), fields=["execution_id", "attempt"], name="attempt_log_unindexed"),
        ),
        migrations.CreateModel(
            name="LogIndexMark",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("reached_at", models.DateTimeField(help_text="What was stored before it can be searched.", null=True)),
                ("round_began_at", models.DateTimeField(null=True)),
                ("cursor", models.UUIDField(help_text="The execution that the present round goes on with.", null=True)),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="log_index_mark_is_one_row")],
            },
        ),
        migrations.RunPython(create_indexing, migrations.RunPython.noop),
    ]
