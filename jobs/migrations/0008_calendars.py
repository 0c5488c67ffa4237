"""Named calendars; jobs and schedules that are deleted keep their rows, and with them their history."""

import django.contrib.postgres.fields
import django.db.models.deletion
import jobs.models.ids
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0007_backfill'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Calendar',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('dates', django.contrib.postgres.fields.ArrayField(base_field=models.DateField(), default=list, help_text='Local dates without instants.', size=None)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
        ),
        migrations.AddField(
            model_name='job',
            name='deleted_at',
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name='schedule',
            name='deleted_at',
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name='schedule',
            name='own_excluded_dates',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.DateField(), help_text="With a calendar: the dates that it excludes beside the calendar's.", null=True, size=None),
        ),
        migrations.AddField(
            model_name='scheduleversion',
            name='settled_before',
            field=models.PositiveBigIntegerField(help_text='How many instants the versions before it had.', null=True),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('deleted_at__isnull', True), ('state', 'cancelled'), _connector='OR'), name='job_deleted_is_cancelled'),
        ),
        migrations.AddField(
            model_name='calendar',
            name='owner',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='calendars', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='schedule',
            name='calendar',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='schedules', to='jobs.calendar'),
        ),
        migrations.AddIndex(
            model_name='schedule',
            index=models.Index(condition=models.Q(('calendar__isnull', False)), fields=['calendar'], name='schedule_by_calendar'),
        ),
        migrations.AddConstraint(
            model_name='schedule',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('calendar__isnull', True), ('own_excluded_dates__isnull', True)), models.Q(('calendar__isnull', False), ('own_excluded_dates__isnull', False)), _connector='OR'), name='schedule_own_dates_iff_calendar'),
        ),
        migrations.AddConstraint(
            model_name='schedule',
            constraint=models.CheckConstraint(condition=models.Q(('deleted_at__isnull', True), ('next_instant__isnull', True), _connector='OR'), name='schedule_deleted_is_over'),
        ),
        migrations.AddConstraint(
            model_name='calendar',
            constraint=models.UniqueConstraint(fields=('owner', 'name'), name='calendar_name_once'),
        ),
    ]
