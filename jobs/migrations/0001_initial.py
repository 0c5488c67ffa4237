"""The tables of the control plane.

Logs and events are partitioned by day; a default partition takes what no other does, so no insert fails.
"""

import datetime
import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.core.validators
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.datetime
import django.db.models.functions.text
import django.db.models.lookups
import jobs.models.ids
from django.conf import settings
from django.contrib.postgres.operations import BtreeGinExtension, TrigramExtension
from django.db import migrations, models

# The first two weeks of each; the system task `jobs.create_partitions` keeps the days after them ready.
FIRST_DAYS = """
DO $$
DECLARE day date;
BEGIN
    FOR offset_days IN 0..14 LOOP
        day := (now() AT TIME ZONE 'UTC')::date + offset_days;
        EXECUTE format('CREATE TABLE {table}_%s PARTITION OF {table} FOR VALUES FROM (%L) TO (%L)',
                       to_char(day, 'YYYYMMDD'), {start}, {end});
    END LOOP;
END $$;
"""
BY_DATE = {"start": "day", "end": "day + 1"}
BY_TIME = {"start": "day || ' 00:00:00+00'", "end": "(day + 1) || ' 00:00:00+00'"}
EVENTS = """
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
""" + FIRST_DAYS.format(table="jobs_executionevent", **BY_TIME)
# The default compression, pglz, is slower than a run writes.
CHUNKS = """
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
DO $$
BEGIN
    ALTER TABLE jobs_logchunk ALTER COLUMN data SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
    ALTER TABLE jobs_logchunk ALTER COLUMN data SET STORAGE EXTERNAL;
END $$;
CREATE TABLE jobs_logchunk_default PARTITION OF jobs_logchunk DEFAULT;
""" + FIRST_DAYS.format(table="jobs_logchunk", **BY_DATE)
# Storage MAIN keeps compressed text on the page of its row, which a search reads anyway.
# Each partition inherits the indexes.
SEGMENTS = """
CREATE TABLE jobs_logsegment (
    day date NOT NULL,
    execution_id uuid NOT NULL,
    attempt integer NOT NULL CHECK (attempt >= 0),
    first_sequence integer NOT NULL CHECK (first_sequence >= 0),
    part integer NOT NULL CHECK (part >= 0),
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
    folded text COLLATE "C",
    PRIMARY KEY (day, execution_id, attempt, first_sequence, part)
) PARTITION BY RANGE (day);
ALTER TABLE jobs_logsegment ALTER COLUMN text SET STORAGE MAIN, ALTER COLUMN folded SET STORAGE MAIN;
CREATE INDEX log_segment_by_owner
    ON jobs_logsegment (owner_id, day, execution_id, attempt, first_sequence, part);
CREATE INDEX log_segment_by_job ON jobs_logsegment (job_id, day, execution_id, attempt, first_sequence, part);
CREATE INDEX log_segment_trigrams ON jobs_logsegment
 USING gin (owner_id, job_id, (coalesce(folded, lower(text COLLATE "C"))) gin_trgm_ops);
CREATE TABLE jobs_logsegment_default PARTITION OF jobs_logsegment DEFAULT;
""" + FIRST_DAYS.format(table="jobs_logsegment", **BY_DATE)


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        TrigramExtension(),
        BtreeGinExtension(),
        migrations.CreateModel(
            name='BeatLease',
            fields=[
                ('duty', models.CharField(max_length=32, primary_key=True, serialize=False)),
                ('holder', models.UUIDField()),
                ('lease_until', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Counter',
            fields=[
                ('name', models.CharField(max_length=63, primary_key=True, serialize=False)),
                ('value', models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='Execution',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('trigger', models.CharField(choices=[('schedule', 'Schedule'), ('manual', 'Manual'), ('dependency', 'Dependency'), ('backfill', 'Backfill'), ('retry', 'Retry')], max_length=16)),
                ('run_id', models.UUIDField(help_text='Shared by all executions that follow from one firing.')),
                ('scheduled_for', models.DateTimeField()),
                ('retry_of', models.UUIDField(help_text='The execution that this one retries; it may be pruned.', null=True)),
                ('state', models.CharField(choices=[('blocked', 'blocked'), ('ready', 'ready'), ('backing_off', 'backing_off'), ('queued', 'queued'), ('claimed', 'claimed'), ('running', 'running'), ('succeeded', 'succeeded'), ('failed', 'failed'), ('timed_out', 'timed_out'), ('cancelled', 'cancelled'), ('missed', 'missed'), ('skipped', 'skipped')], max_length=16)),
                ('attempt', models.PositiveIntegerField(default=0, help_text='Fencing token: increases with every placement.')),
                ('tries_used', models.PositiveIntegerField(default=0)),
                ('times_lost', models.PositiveIntegerField(default=0)),
                ('incarnation', models.PositiveBigIntegerField(null=True)),
                ('rank', models.DateTimeField(help_text='Placement order: ready time, moved by priority.')),
                ('job_line', models.SmallIntegerField(choices=[(1, 'Without Network'), (2, 'With Network')], help_text='Parked because its job is at its limit.', null=True)),
                ('owner_line', models.IntegerField(help_text='Parked because this owner is at a limit.', null=True)),
                ('fired_at', models.DateTimeField()),
                ('ready_at', models.DateTimeField(null=True)),
                ('retry_at', models.DateTimeField(null=True)),
                ('placed_at', models.DateTimeField(null=True)),
                ('published_at', models.DateTimeField(null=True)),
                ('claimed_at', models.DateTimeField(null=True)),
                ('started_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('cancel_requested_at', models.DateTimeField(null=True)),
                ('deadline_at', models.DateTimeField(help_text='No attempt starts after it; a run is limited to the remaining time.', null=True)),
                ('reason', models.CharField(max_length=24, null=True)),
                ('exit_code', models.IntegerField(null=True)),
                ('signal', models.SmallIntegerField(null=True)),
                ('result', models.JSONField(null=True)),
                ('progress', models.JSONField(help_text='Last reported progress, with its attempt.', null=True)),
                ('dead_letter', models.CharField(choices=[('open', 'Open'), ('redriven', 'Redriven'), ('dismissed', 'Dismissed')], max_length=16, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='FullOwner',
            fields=[
                ('owner_id', models.IntegerField(primary_key=True, serialize=False)),
                ('checked_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='LogPack',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('size', models.BigIntegerField()),
            ],
        ),
        migrations.CreateModel(
            name='Queue',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9_.-]{0,62}\\Z', "Use lower-case letters, digits, '_', '.' and '-', at most 63.")])),
                ('pool', models.CharField(default='default', max_length=63, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9_.-]{0,62}\\Z', "Use lower-case letters, digits, '_', '.' and '-', at most 63.")])),
                ('priority', models.SmallIntegerField(default=0, help_text='Added to the priority of every job of this queue.', validators=[django.core.validators.MinValueValidator(-100), django.core.validators.MaxValueValidator(100)])),
                ('max_concurrency', models.PositiveIntegerField(blank=True, help_text='Active executions at once; empty: no limit.', null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('aging_seconds', models.FloatField(default=60, help_text='One step of priority is worth this many seconds of waiting.', validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(86400)])),
                ('paused', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('digest', models.CharField(editable=False, max_length=64, unique=True)),
                ('scope', models.CharField(choices=[('read', 'Read'), ('submit', 'Submit'), ('operate', 'Operate'), ('admin', 'Admin'), ('worker', 'Worker')], default='read', help_text='Read, submit, operate, admin: each includes the previous ones. Worker: only for `./punctual worker`.', max_length=16)),
                ('pool', models.CharField(blank=True, db_default='', default='', help_text='Worker tokens only: the pool that they may join. Empty: any pool, and so any work.', max_length=63)),
                ('max_workers', models.PositiveSmallIntegerField(db_default=1, default=1, help_text='Worker tokens only: maximum number of workers at the same time.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000)])),
                ('secrets', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), blank=True, db_default=models.Value(['*'], django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), size=None)), default=list, help_text='Names of the secrets that it may grant to jobs, separated by commas. *: all.', size=None)),
                ('password_mark', models.CharField(db_default='', default='', editable=False, help_text="Mark of the owner's password when the token was created.", max_length=64)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField(blank=True, help_text='Empty: never.', null=True)),
                ('revoked_at', models.DateTimeField(editable=False, null=True)),
                ('last_used_at', models.DateTimeField(editable=False, help_text='To the minute.', null=True)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_tokens', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'API token',
            },
        ),
        migrations.CreateModel(
            name='Artifact',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('sha256', models.CharField(max_length=64)),
                ('size', models.BigIntegerField()),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('wanted_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False, help_text='When it was last announced, completed or used.')),
                ('doomed_at', models.DateTimeField(editable=False, help_text='Start of its collection: its bytes may be deleted already.', null=True)),
                ('verified_at', models.DateTimeField(editable=False, help_text='When the stored bytes were verified.', null=True)),
                ('deleted_at', models.DateTimeField(editable=False, help_text='When its bytes were deleted; the row stays for old versions.', null=True)),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='artifacts', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('actor_id', models.BigIntegerField(null=True)),
                ('actor_name', models.CharField(help_text='Name of the user at that time.', max_length=150)),
                ('token_id', models.UUIDField(help_text='Empty for a session, or without a request.', null=True)),
                ('token_name', models.CharField(default='', max_length=100)),
                ('via', models.CharField(choices=[('api', 'Api'), ('cli', 'Cli'), ('admin', 'Admin'), ('system', 'System')], max_length=16)),
                ('address', models.GenericIPAddressField(null=True)),
                ('action', models.CharField(max_length=63)),
                ('object_type', models.CharField(max_length=63)),
                ('object_id', models.CharField(max_length=63)),
                ('object_name', models.CharField(max_length=200)),
                ('owner_id', models.BigIntegerField(help_text="Owner of the object, who may read the entry; the actor if the object has no owner.", null=True)),
                ('before', models.JSONField(default=dict)),
                ('after', models.JSONField(default=dict)),
            ],
            options={
                'verbose_name': 'change',
                'indexes': [models.Index(fields=['owner_id', '-id'], name='audit_by_owner'), models.Index(fields=['actor_name', '-id'], name='audit_by_actor'), models.Index(fields=['object_id', '-id'], name='audit_by_object'), models.Index(fields=['object_type', '-id'], name='audit_by_type'), models.Index(fields=['action', '-id'], name='audit_by_action')],
                'constraints': [models.CheckConstraint(condition=models.Q(('via__in', ['api', 'cli', 'admin', 'system'])), name='audit_entry_via_known')],
            },
        ),
        migrations.CreateModel(
            name='Calendar',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('dates', django.contrib.postgres.fields.ArrayField(base_field=models.DateField(), default=list, help_text='Excluded local dates.', size=None)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='calendars', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('incarnation', models.PositiveBigIntegerField()),
                ('placed_at', models.DateTimeField()),
                ('claimed_at', models.DateTimeField()),
                ('started_at', models.DateTimeField(null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('reason', models.CharField(max_length=24, null=True)),
                ('exit_code', models.IntegerField(null=True)),
                ('signal', models.PositiveSmallIntegerField(null=True)),
                ('error', models.TextField(blank=True, default='')),
                ('cpu_seconds', models.FloatField(null=True)),
                ('peak_memory_bytes', models.BigIntegerField(null=True)),
                ('peak_disk_bytes', models.BigIntegerField(null=True)),
                ('log_truncated', models.BooleanField(default=False)),
                ('log_bytes', models.PositiveBigIntegerField(db_default=0, default=0)),
                ('output_files', models.PositiveIntegerField(db_default=0, default=0)),
                ('output_bytes', models.PositiveBigIntegerField(db_default=0, default=0)),
                ('output_announced', models.CharField(blank=True, db_default='', default='', help_text='SHA-256 of the last announced output.', max_length=64)),
                ('receipt', models.JSONField(help_text='The sandbox of the run: namespaces, limits, network.', null=True)),
                ('execution', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='attempts', to='jobs.execution')),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(EVENTS, 'DROP TABLE jobs_executionevent')],
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
            ],
        ),
        migrations.CreateModel(
            name='FanOut',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('job_id', models.UUIDField(help_text='The upstream.')),
                ('step', models.CharField(choices=[('create', 'Create'), ('decide', 'Decide')], max_length=8)),
                ('after', models.UUIDField(default='00000000-0000-0000-0000-000000000000', help_text='The last dependent job that was processed.')),
                ('try_at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['step', 'try_at'], name='fan_out_due')],
                'constraints': [models.UniqueConstraint(fields=('run_id', 'job_id', 'step'), name='fan_out_once'), models.CheckConstraint(condition=models.Q(('step__in', ['create', 'decide'])), name='fan_out_step_known')],
            },
        ),
        migrations.CreateModel(
            name='IdempotencyClaim',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('key', models.CharField(help_text="The request's Idempotency-Key.", max_length=255)),
                ('expires_at', models.DateTimeField()),
                ('owner', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Job',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=200)),
                ('state', models.CharField(choices=[('active', 'Active'), ('paused', 'Paused'), ('cancelled', 'Cancelled')], default='active', max_length=16)),
                ('paused_at', models.DateTimeField(editable=False, null=True)),
                ('paused_note', models.CharField(blank=True, default='', max_length=1000)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('deleted_at', models.DateTimeField(editable=False, null=True)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='jobs', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'permissions': [('use_network', 'Can give the runs of own jobs a network')],
            },
        ),
        migrations.AddField(
            model_name='execution',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='executions', to='jobs.job'),
        ),
        migrations.CreateModel(
            name='Dependency',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('condition', models.CharField(choices=[('success', 'Success'), ('failure', 'Failure'), ('completion', 'Completion')], default='success', max_length=16)),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='dependencies', to='jobs.job')),
                ('upstream', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='dependents', to='jobs.job')),
            ],
            options={
                'verbose_name_plural': 'dependencies',
            },
        ),
        migrations.CreateModel(
            name='Backfill',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('from_at', models.DateTimeField()),
                ('to_at', models.DateTimeField()),
                ('requested_by', models.CharField(max_length=150)),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('running', 'Running'), ('done', 'Done'), ('cancelled', 'Cancelled')], default='pending', max_length=16)),
                ('cursor', models.DateTimeField(null=True)),
                ('created_count', models.PositiveBigIntegerField(default=0)),
                ('expected_count', models.PositiveBigIntegerField(help_text='Instants without an execution at the time of the request.')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('looked_at', models.DateTimeField(editable=False, help_text='When it was last advanced.', null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='backfills', to='jobs.job')),
            ],
        ),
        migrations.CreateModel(
            name='JobVersion',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('runtime', models.CharField(max_length=32)),
                ('args', models.JSONField(default=list)),
                ('env', models.JSONField(default=dict)),
                ('priority', models.SmallIntegerField()),
                ('cpu', models.FloatField()),
                ('memory_mb', models.PositiveIntegerField()),
                ('disk_mb', models.PositiveIntegerField()),
                ('capabilities', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), default=list, size=None)),
                ('resources', models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ('timeout_seconds', models.FloatField()),
                ('deadline_seconds', models.FloatField(help_text='For all attempts together, counted from firing.', null=True)),
                ('retry', models.JSONField(default=dict)),
                ('max_concurrency', models.PositiveIntegerField(default=1, null=True)),
                ('overlap', models.CharField(choices=[('queue', 'Queue'), ('skip', 'Skip'), ('cancel_running', 'Cancel Running')], default='queue', max_length=16)),
                ('delivery', models.CharField(choices=[('at_least_once', 'At Least Once'), ('at_most_once', 'At Most Once')], default='at_least_once', max_length=16)),
                ('network', models.BooleanField(db_default=False, default=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('artifact', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='versions', to='jobs.artifact')),
                ('job', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='jobs.job')),
                ('queue', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='versions', to='jobs.queue')),
            ],
        ),
        migrations.AddField(
            model_name='job',
            name='current_version',
            field=models.OneToOneField(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='current_of', to='jobs.jobversion'),
        ),
        migrations.AddField(
            model_name='execution',
            name='version',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='jobs.jobversion'),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(CHUNKS, 'DROP TABLE jobs_logchunk')],
            state_operations=[
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
        migrations.CreateModel(
            name='LogIndexMark',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('reached_at', models.DateTimeField(help_text='Chunks stored before this time are searchable.', null=True)),
                ('round_began_at', models.DateTimeField(null=True)),
                ('cursor', models.UUIDField(help_text='Position of the current round.', null=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='log_index_mark_is_one_row')],
            },
        ),
        migrations.CreateModel(
            name='AttemptLog',
            fields=[
                ('pk', models.CompositePrimaryKey('execution_id', 'attempt', blank=True, editable=False, primary_key=True, serialize=False)),
                ('execution_id', models.UUIDField()),
                ('attempt', models.PositiveIntegerField()),
                ('day', models.DateField()),
                ('owner_id', models.IntegerField()),
                ('job_id', models.UUIDField()),
                ('indexed_to', models.IntegerField(db_default=-1, default=-1, help_text='Last searchable sequence.')),
                ('indexed_at', models.DateTimeField(help_text='When the whole log became searchable.', null=True)),
                ('stdout_carry', models.BinaryField(db_default=b'', default=b'')),
                ('stderr_carry', models.BinaryField(db_default=b'', default=b'')),
                ('pack_offset', models.BigIntegerField(null=True)),
                ('pack_length', models.BigIntegerField(null=True)),
                ('archived_to', models.IntegerField(help_text='Last archived sequence; -1 for an empty log.', null=True)),
                ('archive_failed_at', models.DateTimeField(help_text='When archiving last failed.', null=True)),
                ('settled_at', models.DateTimeField(help_text='When it was complete, searchable and archived.', null=True)),
                ('pack', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='logs', to='jobs.logpack')),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(SEGMENTS, 'DROP TABLE jobs_logsegment')],
            state_operations=[
                migrations.CreateModel(
                    name='LogSegment',
                    fields=[
                        ('pk', models.CompositePrimaryKey('day', 'execution_id', 'attempt', 'first_sequence', 'part', blank=True, editable=False, primary_key=True, serialize=False)),
                        ('day', models.DateField()),
                        ('execution_id', models.UUIDField()),
                        ('attempt', models.PositiveIntegerField()),
                        ('first_sequence', models.PositiveIntegerField()),
                        ('part', models.PositiveIntegerField(help_text='Number of the segment among those that begin in this chunk.')),
                        ('stream', models.CharField(choices=[('stdout', 'stdout'), ('stderr', 'stderr')], max_length=6)),
                        ('owner_id', models.IntegerField()),
                        ('job_id', models.UUIDField()),
                        ('logged_from', models.DateTimeField()),
                        ('logged_to', models.DateTimeField()),
                        ('offsets', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)),
                        ('sequences', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)),
                        ('times', django.contrib.postgres.fields.ArrayField(base_field=models.DateTimeField(), size=None)),
                        ('carried', models.PositiveIntegerField(help_text='Length of the overlap with the previous segment, in characters.')),
                        ('text', models.TextField()),
                        ('folded', models.TextField(db_collation='C', null=True)),
                    ],
                    options={
                        'indexes': [models.Index(fields=['owner_id', 'day', 'execution_id', 'attempt', 'first_sequence', 'part'], name='log_segment_by_owner'), models.Index(fields=['job_id', 'day', 'execution_id', 'attempt', 'first_sequence', 'part'], name='log_segment_by_job')],
                    },
                ),
            ],
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Output',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=1024)),
                ('size', models.BigIntegerField()),
                ('sha256', models.CharField(max_length=64)),
                ('attempt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='outputs', to='jobs.attempt')),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='outputs', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='OwnerQuota',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('storage_mb', models.PositiveIntegerField(blank=True, help_text='Artifacts, published outputs and logs together, in megabytes; 0: no limit.', null=True)),
                ('requests_per_minute', models.PositiveIntegerField(blank=True, help_text='All tokens together; 0: no limit.', null=True)),
                ('jobs', models.PositiveIntegerField(blank=True, help_text='Jobs that are not deleted; 0: no limit.', null=True)),
                ('concurrent_executions', models.PositiveIntegerField(blank=True, help_text='Executions placed or running at once; 0: no limit.', null=True)),
                ('backlog', models.PositiveIntegerField(blank=True, help_text='Unfinished manually started executions of all jobs together; 0: no limit.', null=True)),
                ('job_backlog', models.PositiveIntegerField(blank=True, help_text='Unfinished manually started executions of each job; 0: no limit.', null=True)),
                ('job_dependents', models.PositiveIntegerField(blank=True, help_text='Dependents of each job; 0: no limit.', null=True)),
                ('owner', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='quota', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.AddField(
            model_name='execution',
            name='queue',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='jobs.queue'),
        ),
        migrations.CreateModel(
            name='ReaperStamp',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('stamped_at', models.DateTimeField()),
                ('unbroken_since', models.DateTimeField(help_text='Start of the current series of passes without a gap.')),
                ('timeline', models.BigIntegerField(help_text='Timeline of Postgres at the last pass.', null=True)),
                ('placement_resumes_at', models.DateTimeField(help_text='No placement before this time: runs whose claims a failover lost may still be going on.', null=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='reaper_stamp_is_one')],
            },
        ),
        migrations.CreateModel(
            name='RetentionMark',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('pruned_before', models.DateTimeField(help_text='Executions and history of earlier instants may be pruned.', null=True)),
                ('cursor', models.UUIDField(help_text='Position of the current round.', null=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='retention_mark_is_one_row')],
            },
        ),
        migrations.CreateModel(
            name='Schedule',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('cron', 'cron'), ('every', 'every'), ('at', 'at'), ('solar', 'solar'), ('delay', 'delay')], max_length=16)),
                ('expression', models.CharField(max_length=255)),
                ('timezone', models.CharField(default='UTC', max_length=64)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(null=True)),
                ('jitter_seconds', models.FloatField(default=0)),
                ('catch_up', models.CharField(choices=[('all', 'all'), ('latest', 'latest'), ('none', 'none')], default='latest', max_length=16)),
                ('catch_up_window_seconds', models.FloatField(null=True)),
                ('excluded_dates', django.contrib.postgres.fields.ArrayField(base_field=models.DateField(), default=list, help_text='Excluded local dates.', size=None)),
                ('own_excluded_dates', django.contrib.postgres.fields.ArrayField(base_field=models.DateField(), help_text="With a calendar: the excluded dates in addition to the calendar's.", null=True, size=None)),
                ('max_count', models.PositiveIntegerField(help_text='Maximum number of instants; empty: no limit.', null=True)),
                ('settled_count', models.PositiveBigIntegerField(default=0)),
                ('next_instant', models.DateTimeField(null=True)),
                ('next_fire_at', models.DateTimeField(null=True)),
                ('quarantined_at', models.DateTimeField(help_text='When its recurrence could not be computed.', null=True)),
                ('quarantine_error', models.TextField(blank=True, default='')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('deleted_at', models.DateTimeField(editable=False, null=True)),
                ('calendar', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='schedules', to='jobs.calendar')),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='schedules', to='jobs.job')),
            ],
        ),
        migrations.AddField(
            model_name='execution',
            name='schedule',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, to='jobs.schedule'),
        ),
        migrations.CreateModel(
            name='DroppedRange',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('first', models.DateTimeField()),
                ('last', models.DateTimeField()),
                ('count', models.PositiveBigIntegerField()),
                ('reason', models.CharField(choices=[('catch_up', 'Catch Up'), ('paused', 'Paused')], max_length=16)),
                ('created_at', models.DateTimeField()),
                ('schedule', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='dropped', to='jobs.schedule')),
            ],
        ),
        migrations.CreateModel(
            name='ScheduleVersion',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('from_at', models.DateTimeField()),
                ('to_at', models.DateTimeField(null=True)),
                ('paused', models.BooleanField(default=False)),
                ('kind', models.CharField(max_length=16)),
                ('expression', models.CharField(max_length=255)),
                ('timezone', models.CharField(max_length=64)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(null=True)),
                ('jitter_seconds', models.FloatField()),
                ('excluded_dates', django.contrib.postgres.fields.ArrayField(base_field=models.DateField(), default=list, size=None)),
                ('max_count', models.PositiveIntegerField(null=True)),
                ('settled_before', models.PositiveBigIntegerField(help_text='Number of instants of all earlier versions.', null=True)),
                ('schedule', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='history', to='jobs.schedule')),
            ],
        ),
        migrations.CreateModel(
            name='Secret',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63)),
                ('sealed', models.BinaryField()),
                ('version', models.PositiveIntegerField(default=1, help_text='Increases with every new value.')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='secrets', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='StoredAnswer',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('key', models.CharField(help_text="The request's Idempotency-Key.", max_length=255)),
                ('route', models.CharField(help_text='Method and path of the request.', max_length=255)),
                ('body_sha256', models.CharField(max_length=64)),
                ('status', models.PositiveSmallIntegerField()),
                ('location', models.CharField(blank=True, default='', max_length=255)),
                ('body', models.TextField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('expires_at', models.DateTimeField()),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Team',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9_.-]{0,62}\\Z', "Use lower-case letters, digits, '_', '.' and '-', at most 63.")])),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('members', models.ManyToManyField(related_name='teams', through='jobs.Membership', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.AddField(
            model_name='queue',
            name='team',
            field=models.ForeignKey(blank=True, db_index=False, help_text="Only jobs of members of this team, or of staff, may use it; empty: all jobs.", null=True, on_delete=django.db.models.deletion.PROTECT, related_name='queues', to='jobs.team'),
        ),
        migrations.AddField(
            model_name='membership',
            name='team',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='jobs.team'),
        ),
        migrations.AddField(
            model_name='job',
            name='team',
            field=models.ForeignKey(db_index=False, help_text='Empty: none.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='jobs', to='jobs.team'),
        ),
        migrations.CreateModel(
            name='VersionInput',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('path', models.CharField(max_length=1024, null=True)),
                ('artifact', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='inputs', to='jobs.artifact')),
                ('version', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='inputs', to='jobs.jobversion')),
            ],
        ),
        migrations.CreateModel(
            name='VersionSecret',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63)),
                ('env', models.CharField(max_length=128, null=True)),
                ('path', models.CharField(max_length=1024, null=True)),
                ('version', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='secrets', to='jobs.jobversion')),
            ],
        ),
        migrations.CreateModel(
            name='Webhook',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('url', models.CharField(max_length=2000)),
                ('host', models.CharField(help_text='Host of the URL; concurrent deliveries are limited by host.', max_length=255)),
                ('events', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=16), help_text='Outcomes that are delivered.', size=None)),
                ('sealed', models.BinaryField(help_text='Sealed signing secret.')),
                ('previous_sealed', models.BinaryField(null=True)),
                ('previous_until', models.DateTimeField(help_text='Until then deliveries are also signed with the previous secret.', null=True)),
                ('enabled', models.BooleanField(default=True)),
                ('disabled_reason', models.CharField(blank=True, default='', max_length=200)),
                ('failing_since', models.DateTimeField(help_text='Start of the current series of failed deliveries; empty: the last one succeeded.', null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('job', models.ForeignKey(db_index=False, help_text='Only executions of this job; empty: all jobs.', null=True, on_delete=django.db.models.deletion.CASCADE, to='jobs.job')),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='webhooks', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='WebhookDelivery',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('event', models.CharField(max_length=32)),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('delivered', 'Delivered'), ('failed', 'Failed')], default='pending', max_length=16)),
                ('attempts', models.PositiveIntegerField(default=0, help_text='Fencing token: increases with every try.')),
                ('tries_left', models.PositiveSmallIntegerField()),
                ('next_try_at', models.DateTimeField(help_text='When it is sent next; while it is being sent: when the sender is considered lost.')),
                ('tried_at', models.DateTimeField(null=True)),
                ('status_code', models.PositiveSmallIntegerField(help_text='Status of the last response; empty: there was none.', null=True)),
                ('error', models.CharField(blank=True, default='', max_length=500)),
                ('response', models.TextField(blank=True, default='', help_text='Beginning of the last response.')),
                ('created_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('execution', models.ForeignKey(db_index=False, help_text='Empty for a test.', null=True, on_delete=django.db.models.deletion.CASCADE, to='jobs.execution')),
                ('webhook', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='jobs.webhook')),
            ],
            options={
                'verbose_name_plural': 'webhook deliveries',
            },
        ),
        migrations.CreateModel(
            name='Worker',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=200, unique=True)),
                ('pool', models.CharField(default='default', max_length=63)),
                ('host', models.CharField(max_length=255)),
                ('instance', models.UUIDField(help_text='Kept in its state directory: distinguishes a restart from another worker of the same name.')),
                ('incarnation', models.PositiveBigIntegerField(help_text='Fencing token: increases with every registration.')),
                ('status', models.CharField(choices=[('online', 'Online'), ('suspect', 'Suspect'), ('draining', 'Draining'), ('lost', 'Lost'), ('offline', 'Offline'), ('retired', 'Retired')], max_length=16)),
                ('lease_until', models.DateTimeField()),
                ('capabilities', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), default=list, size=None)),
                ('details', models.JSONField(default=dict)),
                ('slots', models.PositiveIntegerField()),
                ('cpu', models.FloatField()),
                ('memory_mb', models.PositiveIntegerField()),
                ('disk_mb', models.PositiveIntegerField()),
                ('resources', models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ('usage', models.JSONField(help_text="Usage reported with the last renewal.", null=True)),
                ('refusal', models.CharField(blank=True, db_default='', default='', help_text='Why it accepts no work: the failed test of its sandbox. Empty: it accepts work.', max_length=2000)),
                ('registered_at', models.DateTimeField()),
                ('transport', models.CharField(choices=[('celery', 'celery'), ('rest', 'rest')], db_default='celery', default='celery', help_text='How it receives work: through its Celery queue, or by polling over HTTP.', max_length=16)),
                ('address', models.GenericIPAddressField(help_text='Address of its last registration over HTTP.', null=True)),
                ('token', models.ForeignKey(help_text='The token that it registered with; only this token may act for it.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='workers', to='jobs.apitoken')),
            ],
        ),
        migrations.AddField(
            model_name='execution',
            name='pinned_worker',
            field=models.ForeignKey(db_index=False, help_text='The only worker that may run it; empty: any.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='pinned_executions', to='jobs.worker'),
        ),
        migrations.AddField(
            model_name='execution',
            name='worker',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='jobs.worker'),
        ),
        migrations.AddField(
            model_name='attempt',
            name='worker',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='jobs.worker'),
        ),
        migrations.AddIndex(
            model_name='apitoken',
            index=models.Index(fields=['owner', '-id'], name='api_token_by_owner'),
        ),
        migrations.AddConstraint(
            model_name='apitoken',
            constraint=models.CheckConstraint(condition=models.Q(('scope__in', ['read', 'submit', 'operate', 'admin', 'worker'])), name='api_token_scope_is_one'),
        ),
        migrations.AddIndex(
            model_name='artifact',
            index=models.Index(fields=['sha256'], name='artifact_by_hash'),
        ),
        migrations.AddIndex(
            model_name='artifact',
            index=models.Index(condition=models.Q(('doomed_at__isnull', False)), fields=['doomed_at'], name='artifact_doomed'),
        ),
        migrations.AddIndex(
            model_name='artifact',
            index=models.Index(condition=models.Q(('deleted_at__isnull', True)), fields=['owner', '-id'], include=('size',), name='artifact_by_owner'),
        ),
        migrations.AddConstraint(
            model_name='artifact',
            constraint=models.UniqueConstraint(fields=('owner', 'sha256'), name='artifact_once_per_owner'),
        ),
        migrations.AddConstraint(
            model_name='artifact',
            constraint=models.CheckConstraint(condition=models.Q(('sha256__regex', '^[0-9a-f]{64}$')), name='artifact_sha256_hex'),
        ),
        migrations.AddConstraint(
            model_name='artifact',
            constraint=models.CheckConstraint(condition=models.Q(('size__gte', 0)), name='artifact_size_not_negative'),
        ),
        migrations.AddIndex(
            model_name='calendar',
            index=models.Index(fields=['owner', '-id'], name='calendar_by_owner'),
        ),
        migrations.AddConstraint(
            model_name='calendar',
            constraint=models.UniqueConstraint(fields=('owner', 'name'), name='calendar_name_once'),
        ),
        migrations.AddConstraint(
            model_name='idempotencyclaim',
            constraint=models.UniqueConstraint(fields=('owner', 'key'), name='idempotency_claim_once'),
        ),
        migrations.AddIndex(
            model_name='dependency',
            index=models.Index(fields=['upstream', 'job'], name='dependency_by_upstream'),
        ),
        migrations.AddConstraint(
            model_name='dependency',
            constraint=models.UniqueConstraint(fields=('job', 'upstream'), name='dependency_edge_once'),
        ),
        migrations.AddConstraint(
            model_name='dependency',
            constraint=models.CheckConstraint(condition=models.Q(('job', models.F('upstream')), _negated=True), name='dependency_not_on_itself'),
        ),
        migrations.AddConstraint(
            model_name='dependency',
            constraint=models.CheckConstraint(condition=models.Q(('condition__in', ['success', 'failure', 'completion'])), name='dependency_condition_known'),
        ),
        migrations.AddIndex(
            model_name='backfill',
            index=models.Index(models.OrderBy(models.F('looked_at'), nulls_first=True), models.F('id'), condition=models.Q(('state__in', ['pending', 'running'])), name='backfill_by_turn'),
        ),
        migrations.AddIndex(
            model_name='backfill',
            index=models.Index(fields=['job', '-id'], name='backfill_list_by_job'),
        ),
        migrations.AddConstraint(
            model_name='backfill',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['pending', 'running', 'done', 'cancelled'])), name='backfill_state_known'),
        ),
        migrations.AddConstraint(
            model_name='backfill',
            constraint=models.CheckConstraint(condition=models.Q(('to_at__gt', models.F('from_at'))), name='backfill_in_order'),
        ),
        migrations.AddConstraint(
            model_name='backfill',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('state__in', ['pending', 'running'])), models.Q(models.Q(('state__in', ['pending', 'running']), _negated=True), ('ended_at__isnull', False)), _connector='OR'), name='backfill_ended_at_iff_ended'),
        ),
        migrations.AddIndex(
            model_name='attemptlog',
            index=models.Index(condition=models.Q(('settled_at__isnull', True)), fields=['day'], name='attempt_log_unsettled'),
        ),
        migrations.AddIndex(
            model_name='attemptlog',
            index=models.Index(condition=models.Q(('indexed_at__isnull', True)), fields=['execution_id', 'attempt'], name='attempt_log_unindexed'),
        ),
        migrations.AddIndex(
            model_name='attemptlog',
            index=models.Index(condition=models.Q(('pack_length__isnull', False)), fields=['owner_id'], include=('pack_length',), name='log_bytes_by_owner'),
        ),
        migrations.AddIndex(
            model_name='attemptlog',
            index=models.Index(condition=models.Q(('pack__isnull', True), ('settled_at__isnull', True)), fields=['owner_id'], name='log_unarchived_by_owner'),
        ),
        migrations.AddIndex(
            model_name='attemptlog',
            index=models.Index(condition=models.Q(('pack__isnull', True), ('settled_at__isnull', True)), fields=['day', 'execution_id', 'attempt'], name='attempt_log_unarchived'),
        ),
        migrations.AddConstraint(
            model_name='attemptlog',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('archived_to__isnull', True), ('pack__isnull', True), ('pack_length__isnull', True), ('pack_offset__isnull', True)), models.Q(('archived_to__isnull', False), ('pack__isnull', False), ('pack_length__isnull', False), ('pack_offset__isnull', False), ('archived_to__gte', -1), ('pack_length__gt', 0), ('pack_offset__gte', 0)), _connector='OR'), name='attempt_log_place_whole'),
        ),
        migrations.AddIndex(
            model_name='output',
            index=models.Index(fields=['owner'], include=('size',), name='output_bytes_by_owner'),
        ),
        migrations.AddConstraint(
            model_name='output',
            constraint=models.UniqueConstraint(fields=('attempt', 'name'), name='output_name_once_per_attempt'),
        ),
        migrations.AddConstraint(
            model_name='output',
            constraint=models.CheckConstraint(condition=models.Q(('sha256__regex', '^[0-9a-f]{64}$')), name='output_sha256_hex'),
        ),
        migrations.AddIndex(
            model_name='ownerquota',
            index=models.Index(condition=models.Q(('concurrent_executions__gt', 0)), fields=['owner'], name='quota_of_executions'),
        ),
        migrations.AddIndex(
            model_name='jobversion',
            index=models.Index(fields=['queue', '-job'], name='job_version_by_queue'),
        ),
        migrations.AddIndex(
            model_name='jobversion',
            index=models.Index(fields=['priority', '-job'], name='job_version_by_priority'),
        ),
        migrations.AddConstraint(
            model_name='jobversion',
            constraint=models.UniqueConstraint(fields=('job', 'number'), name='job_version_number_once'),
        ),
        migrations.AddConstraint(
            model_name='jobversion',
            constraint=models.CheckConstraint(condition=models.Q(('priority__gte', 0), ('priority__lte', 9)), name='job_version_priority_0_9'),
        ),
        migrations.AddConstraint(
            model_name='jobversion',
            constraint=models.CheckConstraint(condition=models.Q(('cpu__gt', 0), ('memory_mb__gt', 0)), name='job_version_needs_something'),
        ),
        migrations.AddConstraint(
            model_name='jobversion',
            constraint=models.CheckConstraint(condition=models.Q(('timeout_seconds__gt', 0)), name='job_version_timeout_positive'),
        ),
        migrations.AddConstraint(
            model_name='jobversion',
            constraint=models.CheckConstraint(condition=models.Q(('deadline_seconds__isnull', True), ('deadline_seconds__gt', 0), _connector='OR'), name='job_version_deadline_positive'),
        ),
        migrations.AddConstraint(
            model_name='jobversion',
            constraint=models.CheckConstraint(condition=models.Q(('max_concurrency__isnull', True), ('max_concurrency__gte', 1), _connector='OR'), name='job_version_limit_positive'),
        ),
        migrations.AddConstraint(
            model_name='jobversion',
            constraint=models.CheckConstraint(condition=models.Q(('overlap__in', ['queue', 'skip', 'cancel_running'])), name='job_version_overlap_known'),
        ),
        migrations.AddConstraint(
            model_name='jobversion',
            constraint=models.CheckConstraint(condition=models.Q(('delivery__in', ['at_least_once', 'at_most_once'])), name='job_version_delivery_known'),
        ),
        migrations.AddIndex(
            model_name='schedule',
            index=models.Index(condition=models.Q(('next_fire_at__isnull', False)), fields=['next_fire_at'], name='schedule_due'),
        ),
        migrations.AddIndex(
            model_name='schedule',
            index=models.Index(condition=models.Q(('deleted_at__isnull', True), ('kind', 'delay'), ('next_instant__isnull', True), ('quarantined_at__isnull', True)), fields=['id'], name='schedule_unarmed_delay'),
        ),
        migrations.AddIndex(
            model_name='schedule',
            index=models.Index(condition=models.Q(('calendar__isnull', False)), fields=['calendar'], name='schedule_by_calendar'),
        ),
        migrations.AddConstraint(
            model_name='schedule',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['cron', 'every', 'at', 'solar', 'delay'])), name='schedule_kind_known'),
        ),
        migrations.AddConstraint(
            model_name='schedule',
            constraint=models.CheckConstraint(condition=models.Q(('catch_up__in', ['all', 'latest', 'none'])), name='schedule_catch_up_known'),
        ),
        migrations.AddConstraint(
            model_name='schedule',
            constraint=models.CheckConstraint(condition=models.Q(('max_count__isnull', True), ('max_count__gte', 1), _connector='OR'), name='schedule_max_count_positive'),
        ),
        migrations.AddConstraint(
            model_name='schedule',
            constraint=models.CheckConstraint(condition=models.Q(('jitter_seconds__gte', 0)), name='schedule_jitter_not_negative'),
        ),
        migrations.AddConstraint(
            model_name='schedule',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('next_fire_at__isnull', True), ('next_instant__isnull', True)), models.Q(('next_fire_at__gte', models.F('next_instant')), ('next_fire_at__isnull', False), ('next_instant__isnull', False)), _connector='OR'), name='schedule_fires_at_or_after_its_instant'),
        ),
        migrations.AddConstraint(
            model_name='schedule',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('calendar__isnull', True), ('own_excluded_dates__isnull', True)), models.Q(('calendar__isnull', False), ('own_excluded_dates__isnull', False)), _connector='OR'), name='schedule_own_dates_iff_calendar'),
        ),
        migrations.AddConstraint(
            model_name='schedule',
            constraint=models.CheckConstraint(condition=models.Q(('deleted_at__isnull', True), ('next_instant__isnull', True), _connector='OR'), name='schedule_deleted_is_over'),
        ),
        migrations.AddIndex(
            model_name='droppedrange',
            index=models.Index(fields=['schedule', 'first'], name='dropped_by_schedule'),
        ),
        migrations.AddConstraint(
            model_name='droppedrange',
            constraint=models.CheckConstraint(condition=models.Q(('count__gte', 1), ('last__gte', models.F('first'))), name='dropped_range_holds_something'),
        ),
        migrations.AddConstraint(
            model_name='droppedrange',
            constraint=models.CheckConstraint(condition=models.Q(('reason__in', ['catch_up', 'paused'])), name='dropped_range_reason_known'),
        ),
        migrations.AddIndex(
            model_name='scheduleversion',
            index=models.Index(condition=models.Q(('number__gt', 1), ('to_at__isnull', False)), fields=['to_at'], name='schedule_version_over'),
        ),
        migrations.AddConstraint(
            model_name='scheduleversion',
            constraint=models.UniqueConstraint(fields=('schedule', 'number'), name='schedule_version_number_once'),
        ),
        migrations.AddConstraint(
            model_name='scheduleversion',
            constraint=models.UniqueConstraint(condition=models.Q(('to_at__isnull', True)), fields=('schedule',), name='schedule_version_one_in_force'),
        ),
        migrations.AddConstraint(
            model_name='scheduleversion',
            constraint=models.CheckConstraint(condition=models.Q(('to_at__isnull', True), ('to_at__gte', models.F('from_at')), _connector='OR'), name='schedule_version_in_order'),
        ),
        migrations.AddIndex(
            model_name='secret',
            index=models.Index(fields=['owner', '-id'], name='secret_by_owner'),
        ),
        migrations.AddConstraint(
            model_name='secret',
            constraint=models.UniqueConstraint(fields=('owner', 'name'), name='secret_name_once'),
        ),
        migrations.AddConstraint(
            model_name='secret',
            constraint=models.CheckConstraint(condition=models.Q(('name__regex', '^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$')), name='secret_name_plain'),
        ),
        migrations.AddConstraint(
            model_name='secret',
            constraint=models.CheckConstraint(condition=models.Q(('version__gte', 1)), name='secret_version_counted'),
        ),
        migrations.AddIndex(
            model_name='storedanswer',
            index=models.Index(fields=['expires_at'], name='stored_answer_over'),
        ),
        migrations.AddConstraint(
            model_name='storedanswer',
            constraint=models.UniqueConstraint(fields=('owner', 'key'), name='stored_answer_once'),
        ),
        migrations.AddConstraint(
            model_name='queue',
            constraint=models.CheckConstraint(condition=models.Q(('aging_seconds__gte', 0), ('aging_seconds__lte', 86400)), name='queue_aging_within_a_day'),
        ),
        migrations.AddConstraint(
            model_name='queue',
            constraint=models.CheckConstraint(condition=models.Q(('priority__gte', -100), ('priority__lte', 100)), name='queue_priority_100'),
        ),
        migrations.AddConstraint(
            model_name='queue',
            constraint=models.CheckConstraint(condition=models.Q(('max_concurrency__isnull', True), ('max_concurrency__gte', 1), _connector='OR'), name='queue_limit_positive'),
        ),
        migrations.AddConstraint(
            model_name='membership',
            constraint=models.UniqueConstraint(fields=('team', 'user'), name='team_member_once'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('deleted_at__isnull', True)), fields=['-id'], name='job_live'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('deleted_at__isnull', True)), fields=['owner', '-id'], name='job_live_by_owner'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('deleted_at__isnull', True)), fields=['name', 'id'], name='job_by_name'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('deleted_at__isnull', True)), fields=['owner', 'name', 'id'], name='job_by_owner_and_name'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('team__isnull', False)), fields=['team', '-id'], name='job_by_team'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('deleted_at__isnull', True), ('team__isnull', False)), fields=['team', 'name', 'id'], name='job_by_team_and_name'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('deleted_at__isnull', False)), fields=['-id'], name='job_deleted'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(models.Q(('state', 'active'), _negated=True), ('deleted_at__isnull', True)), fields=['state', '-id'], name='job_stopped'),
        ),
        migrations.AddIndex(
            model_name='job',
            index=django.contrib.postgres.indexes.GinIndex(models.F('owner'), django.contrib.postgres.indexes.OpClass(django.db.models.functions.text.Upper('name'), name='gin_trgm_ops'), name='job_search'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['active', 'paused', 'cancelled'])), name='job_state_known'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('paused_at__isnull', False), ('state', 'paused')), models.Q(models.Q(('state', 'paused'), _negated=True), ('paused_at__isnull', True)), _connector='OR'), name='job_paused_at_iff_paused'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('deleted_at__isnull', True), ('state', 'cancelled'), _connector='OR'), name='job_deleted_is_cancelled'),
        ),
        migrations.AddConstraint(
            model_name='versioninput',
            constraint=models.UniqueConstraint(fields=('version', 'path'), name='version_input_path_once', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='versionsecret',
            constraint=models.UniqueConstraint(fields=('version', 'env'), name='version_secret_env_once'),
        ),
        migrations.AddConstraint(
            model_name='versionsecret',
            constraint=models.UniqueConstraint(fields=('version', 'path'), name='version_secret_path_once'),
        ),
        migrations.AddConstraint(
            model_name='versionsecret',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('env__isnull', True), ('path__isnull', False)), models.Q(('env__isnull', False), ('path__isnull', True)), _connector='OR'), name='version_secret_env_or_path'),
        ),
        migrations.AddIndex(
            model_name='webhook',
            index=models.Index(fields=['owner', '-id'], name='webhook_by_owner'),
        ),
        migrations.AddConstraint(
            model_name='webhook',
            constraint=models.UniqueConstraint(fields=('owner', 'name'), name='webhook_name_once'),
        ),
        migrations.AddConstraint(
            model_name='webhook',
            constraint=models.CheckConstraint(condition=models.Q(('events__contained_by', ['cancelled', 'failed', 'missed', 'skipped', 'succeeded', 'timed_out']), ('events__len__gte', 1)), name='webhook_events_known'),
        ),
        migrations.AddConstraint(
            model_name='webhook',
            constraint=models.CheckConstraint(condition=models.Q(('previous_sealed__isnull', True), ('previous_until__isnull', False), _connector='OR'), name='webhook_previous_secret_ends'),
        ),
        migrations.AddIndex(
            model_name='webhookdelivery',
            index=models.Index(condition=models.Q(('state', 'pending')), fields=['webhook', 'next_try_at'], name='webhook_delivery_pending'),
        ),
        migrations.AddIndex(
            model_name='webhookdelivery',
            index=models.Index(fields=['webhook', '-id'], name='webhook_delivery_list'),
        ),
        migrations.AddIndex(
            model_name='webhookdelivery',
            index=models.Index(condition=models.Q(('state', 'failed')), fields=['webhook', '-id'], name='webhook_delivery_failed'),
        ),
        migrations.AddConstraint(
            model_name='webhookdelivery',
            constraint=models.UniqueConstraint(fields=('execution', 'webhook'), name='webhook_delivery_once'),
        ),
        migrations.AddConstraint(
            model_name='webhookdelivery',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['pending', 'delivered', 'failed'])), name='webhook_delivery_state_known'),
        ),
        migrations.AddConstraint(
            model_name='webhookdelivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('state', 'pending')), models.Q(models.Q(('state', 'pending'), _negated=True), ('ended_at__isnull', False)), _connector='OR'), name='webhook_delivery_ended_iff_over'),
        ),
        migrations.AddIndex(
            model_name='worker',
            index=models.Index(condition=models.Q(('status__in', ('online', 'suspect', 'draining'))), fields=['pool'], name='worker_living'),
        ),
        migrations.AddIndex(
            model_name='worker',
            index=models.Index(condition=models.Q(('status', 'retired'), _negated=True), fields=['-id'], name='worker_present'),
        ),
        migrations.AddConstraint(
            model_name='worker',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['online', 'suspect', 'draining', 'lost', 'offline', 'retired'])), name='worker_status_known'),
        ),
        migrations.AddConstraint(
            model_name='worker',
            constraint=models.CheckConstraint(condition=models.Q(('slots__gte', 1)), name='worker_has_a_slot'),
        ),
        migrations.AddConstraint(
            model_name='worker',
            constraint=models.CheckConstraint(condition=models.Q(('transport__in', ['celery', 'rest'])), name='worker_transport_known'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('job_line__isnull', True), ('owner_line__isnull', True), ('state', 'ready')), fields=['queue', 'rank', 'id'], name='execution_candidates'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('job_line__isnull', False), ('state', 'ready')), fields=['job', 'job_line', 'rank', 'id'], name='execution_lines'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('owner_line__isnull', False), ('state', 'ready')), fields=['owner_line', 'rank', 'id'], name='execution_owner_lines'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('state', 'backing_off')), fields=['retry_at'], name='execution_backing_off'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('state', 'blocked')), fields=['id'], name='execution_blocked'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('state__in', ['queued', 'claimed', 'running'])), fields=['worker', 'incarnation'], name='execution_held'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('placed_at__isnull', False), ('state', 'queued')), fields=['placed_at'], name='execution_unclaimed'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('state__in', ['backing_off', 'blocked', 'claimed', 'queued', 'ready', 'running'])), fields=['job', 'job_line'], name='execution_unfinished_of_job'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('dead_letter__isnull', False)), fields=['dead_letter', '-id'], name='execution_dead_letters'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('deadline_at__isnull', False), ('state__in', ['backing_off', 'blocked', 'queued', 'ready'])), fields=['deadline_at'], name='execution_overdue'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(fields=['job', '-id'], name='execution_list_by_job'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('state__in', ['cancelled', 'failed', 'missed', 'skipped', 'timed_out'])), fields=['state', '-id'], name='execution_unsuccessful'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('state__in', ['cancelled', 'failed', 'missed', 'skipped', 'timed_out'])), fields=['state', '-job'], name='execution_unsuccessful_by_job'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('ended_at__isnull', False)), fields=['ended_at', 'id'], name='execution_ended'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(django.db.models.lookups.GreaterThan(models.ExpressionWrapper(django.db.models.expressions.CombinedExpression(models.F('fired_at'), '-', models.F('scheduled_for')), models.DurationField()), models.Value(datetime.timedelta(seconds=3600), models.DurationField())), django.db.models.lookups.GreaterThan(models.ExpressionWrapper(django.db.models.expressions.CombinedExpression(models.F('ended_at'), '-', models.F('fired_at')), models.DurationField()), models.Value(datetime.timedelta(seconds=3600), models.DurationField())), _connector='OR'), fields=['id'], name='execution_drawn_out'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.UniqueConstraint(fields=('schedule', 'scheduled_for'), name='execution_once_per_instant'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.UniqueConstraint(fields=('run_id', 'job'), name='execution_once_per_run'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.UniqueConstraint(condition=models.Q(('retry_of__isnull', False)), fields=('retry_of',), name='execution_retried_once'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(('dead_letter__isnull', True), models.Q(('dead_letter__in', ['open', 'redriven', 'dismissed']), ('state__in', ['failed', 'timed_out'])), _connector='OR'), name='execution_dead_letter_failed'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['backing_off', 'blocked', 'cancelled', 'claimed', 'failed', 'missed', 'queued', 'ready', 'running', 'skipped', 'succeeded', 'timed_out'])), name='execution_state_known'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(('trigger__in', ['schedule', 'manual', 'dependency', 'backfill', 'retry'])), name='execution_trigger_known'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(('reason__isnull', True), ('reason__in', ['exit', 'timeout', 'out_of_memory', 'cancelled', 'lost', 'released', 'artifact_mismatch', 'artifact_unavailable', 'sandbox_error', 'secret_unavailable', 'deadline', 'catch_up', 'overlap', 'backlog', 'dependency']), _connector='OR'), name='execution_reason_known'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['claimed', 'queued', 'running']), _negated=True), models.Q(('attempt__gte', 1), ('incarnation__isnull', False), ('placed_at__isnull', False), ('worker__isnull', False)), _connector='OR'), name='execution_active_has_worker'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['backing_off', 'blocked', 'missed', 'ready', 'skipped']), _negated=True), ('worker__isnull', True), _connector='OR'), name='execution_waiting_has_no_worker'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['claimed', 'running']), _negated=True), ('claimed_at__isnull', False), _connector='OR'), name='execution_claimed_at_when_claimed'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'running'), _negated=True), ('started_at__isnull', False), _connector='OR'), name='execution_started_at_when_running'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', False), ('state__in', ['cancelled', 'failed', 'missed', 'skipped', 'succeeded', 'timed_out'])), models.Q(models.Q(('state__in', ['cancelled', 'failed', 'missed', 'skipped', 'succeeded', 'timed_out']), _negated=True), ('ended_at__isnull', True)), _connector='OR'), name='execution_ended_at_iff_terminal'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('retry_at__isnull', False), ('state', 'backing_off')), models.Q(models.Q(('state', 'backing_off'), _negated=True), ('retry_at__isnull', True)), _connector='OR'), name='execution_retry_at_iff_backing_off'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'ready'), _negated=True), ('ready_at__isnull', False), _connector='OR'), name='execution_ready_at_when_ready'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(fields=['worker', '-execution'], name='attempt_by_worker'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.UniqueConstraint(fields=('execution', 'number'), name='attempt_number_once'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('reason__isnull', True)), models.Q(('ended_at__isnull', False), ('reason__in', ['exit', 'timeout', 'out_of_memory', 'cancelled', 'lost', 'released', 'artifact_mismatch', 'artifact_unavailable', 'sandbox_error', 'secret_unavailable', 'deadline', 'catch_up', 'overlap', 'backlog', 'dependency']), ('reason__isnull', False)), _connector='OR'), name='attempt_reason_iff_ended'),
        ),
    ]
