"""Backfills, the executions that they create, and the system task that advances them."""

import django.db.models.deletion
import jobs.models.ids
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps


def create_advance(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    interval, _ = apps.get_model("django_celery_beat", "IntervalSchedule").objects.get_or_create(every=5, period="seconds")
    apps.get_model("django_celery_beat", "PeriodicTask").objects.get_or_create(
        name="Advance the backfills",
        # One that waited this long is followed by the next: no pile of them after the workers were away.
        defaults={"task": "jobs.advance_backfills", "interval": interval, "expire_seconds": 5},
    )


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0006_due_window_task'),
        ('django_celery_beat', '0019_alter_periodictasks_options'),
    ]

    operations = [
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
                ('expected_count', models.PositiveBigIntegerField(help_text='Instants that had no execution when it was asked for.')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('ended_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.RemoveConstraint(
            model_name='execution',
            name='execution_trigger_known',
        ),
        migrations.AlterField(
            model_name='execution',
            name='trigger',
            field=models.CharField(choices=[('schedule', 'Schedule'), ('manual', 'Manual'), ('dependency', 'Dependency'), ('backfill', 'Backfill')], max_length=16),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(('trigger__in', ['schedule', 'manual', 'dependency', 'backfill'])), name='execution_trigger_known'),
        ),
        migrations.AddField(
            model_name='backfill',
            name='job',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='backfills', to='jobs.job'),
        ),
        migrations.AddIndex(
            model_name='backfill',
            index=models.Index(condition=models.Q(('state__in', ['pending', 'running'])), fields=['id'], name='backfill_open'),
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
        migrations.RunPython(create_advance, migrations.RunPython.noop),
    ]
