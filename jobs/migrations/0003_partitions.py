"""Logs and events, partitioned by day from the start; a default partition takes what no other does, so no insert fails."""

from django.db import migrations, models

import jobs.models.ids

TABLES = """
CREATE TABLE jobs_logchunk (
    day date NOT NULL,
    execution_id uuid NOT NULL,
    attempt integer NOT NULL CHECK (attempt >= 0),
    sequence integer NOT NULL CHECK (sequence >= 0),
    stream varchar(6) NOT NULL CONSTRAINT log_chunk_stream_known CHECK (stream IN ('stdout', 'stderr')),
    logged_at timestamptz NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (day, execution_id, attempt, sequence)
) PARTITION BY RANGE (day);
CREATE TABLE jobs_logchunk_default PARTITION OF jobs_logchunk DEFAULT;

CREATE TABLE jobs_executionevent (
    created_at timestamptz NOT NULL,
    id uuid NOT NULL,
    execution_id uuid NOT NULL,
    attempt integer NOT NULL CHECK (attempt >= 0),
    name varchar(64) NOT NULL,
    detail jsonb NOT NULL,
    PRIMARY KEY (created_at, id)
) PARTITION BY RANGE (created_at);
CREATE INDEX event_by_execution ON jobs_executionevent (execution_id);
CREATE TABLE jobs_executionevent_default PARTITION OF jobs_executionevent DEFAULT;
"""

# The first two weeks; a system task keeps the days after them ready.
FIRST_DAYS = """
DO $$
DECLARE day date;
BEGIN
    FOR offset_days IN 0..14 LOOP
        day := (now() AT TIME ZONE 'UTC')::date + offset_days;
        EXECUTE format('CREATE TABLE jobs_logchunk_%s PARTITION OF jobs_logchunk FOR VALUES FROM (%L) TO (%L)',
                       to_char(day, 'YYYYMMDD'), day, day + 1);
        EXECUTE format('CREATE TABLE jobs_executionevent_%s PARTITION OF jobs_executionevent FOR VALUES FROM (%L) TO (%L)',
                       to_char(day, 'YYYYMMDD'), day || ' 00:00:00+00', (day + 1) || ' 00:00:00+00');
    END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0002_constraints")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(TABLES + FIRST_DAYS, "DROP TABLE jobs_logchunk; DROP TABLE jobs_executionevent;")
            ],
            state_operations=[
        migrations.CreateModel(
            name='ExecutionEvent',
            fields=[
                ('pk', models.CompositePrimaryKey('created_at', 'id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('id', models.UUIDField(default=jobs.models.ids.new_id)),
                ('created_at', models.DateTimeField()),
                ('execution_id', models.UUIDField()),
                ('attempt', models.PositiveIntegerField()),
                ('name', models.CharField(max_length=64)),
                ('detail', models.JSONField(default=dict)),
            ],
            options={
                'indexes': [models.Index(fields=['execution_id'], name='event_by_execution')],
            },
        ),
        migrations.CreateModel(
            name='LogChunk',
            fields=[
                ('pk', models.CompositePrimaryKey('day', 'execution_id', 'attempt', 'sequence', blank=True, editable=False, primary_key=True, serialize=False)),
                ('day', models.DateField()),
                ('execution_id', models.UUIDField()),
                ('attempt', models.PositiveIntegerField()),
                ('sequence', models.PositiveIntegerField()),
                ('stream', models.CharField(choices=[('stdout', 'stdout'), ('stderr', 'stderr')], max_length=6)),
                ('logged_at', models.DateTimeField()),
                ('data', models.BinaryField()),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('stream__in', ['stdout', 'stderr'])), name='log_chunk_stream_known')],
            },
        ),
            ],
        ),
    ]
