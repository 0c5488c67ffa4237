"""Retries by hand, dead letters and deadlines."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0012_placement'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='attempt',
            name='attempt_reason_iff_ended',
        ),
        migrations.RemoveConstraint(
            model_name='execution',
            name='execution_reason_known',
        ),
        migrations.RemoveConstraint(
            model_name='execution',
            name='execution_trigger_known',
        ),
        migrations.AddField(
            model_name='execution',
            name='dead_letter',
            field=models.CharField(choices=[('open', 'Open'), ('redriven', 'Redriven'), ('dismissed', 'Dismissed')], max_length=16, null=True),
        ),
        migrations.AddField(
            model_name='execution',
            name='deadline_at',
            field=models.DateTimeField(help_text='No attempt starts after it, and a run gets no more than what is left.', null=True),
        ),
        migrations.AddField(
            model_name='execution',
            name='retry_of',
            field=models.UUIDField(help_text='The execution that this one repeats; it may be pruned by now.', null=True),
        ),
        migrations.AddField(
            model_name='jobversion',
            name='deadline_seconds',
            field=models.FloatField(help_text='For all attempts together, from when it fired.', null=True),
        ),
        migrations.AlterField(
            model_name='execution',
            name='trigger',
            field=models.CharField(choices=[('schedule', 'Schedule'), ('manual', 'Manual'), ('dependency', 'Dependency'), ('backfill', 'Backfill'), ('retry', 'Retry')], max_length=16),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('dead_letter__isnull', False)), fields=['dead_letter', '-id'], name='execution_dead_letters'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('deadline_at__isnull', False), ('state__in', ['backing_off', 'blocked', 'queued', 'ready'])), fields=['deadline_at'], name='execution_overdue'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('reason__isnull', True)), models.Q(('ended_at__isnull', False), ('reason__in', ['exit', 'timeout', 'out_of_memory', 'cancelled', 'lost', 'released', 'artifact_mismatch', 'artifact_unavailable', 'sandbox_error', 'deadline', 'catch_up', 'overlap', 'backlog', 'dependency']), ('reason__isnull', False)), _connector='OR'), name='attempt_reason_iff_ended'),
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
            constraint=models.CheckConstraint(condition=models.Q(('trigger__in', ['schedule', 'manual', 'dependency', 'backfill', 'retry'])), name='execution_trigger_known'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(('reason__isnull', True), ('reason__in', ['exit', 'timeout', 'out_of_memory', 'cancelled', 'lost', 'released', 'artifact_mismatch', 'artifact_unavailable', 'sandbox_error', 'deadline', 'catch_up', 'overlap', 'backlog', 'dependency']), _connector='OR'), name='execution_reason_known'),
        ),
        migrations.AddConstraint(
            model_name='jobversion',
            constraint=models.CheckConstraint(condition=models.Q(('deadline_seconds__isnull', True), ('deadline_seconds__gt', 0), _connector='OR'), name='job_version_deadline_positive'),
        ),
    ]
