"""Constraints that tie rows to their meaning, and indexes that serve one named query each."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]

    operations = [
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
            model_name='job',
            index=models.Index(fields=['owner', '-id'], name='job_list_by_owner'),
        ),
        migrations.AddConstraint(
            model_name='job',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['active', 'cancelled'])), name='job_state_known'),
        ),
        migrations.AddConstraint(
            model_name='output',
            constraint=models.UniqueConstraint(fields=('attempt', 'name'), name='output_name_once_per_attempt'),
        ),
        migrations.AddConstraint(
            model_name='output',
            constraint=models.CheckConstraint(condition=models.Q(('sha256__regex', '^[0-9a-f]{64}$')), name='output_sha256_hex'),
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
            constraint=models.CheckConstraint(condition=models.Q(('max_concurrency__isnull', True), ('max_concurrency__gte', 1), _connector='OR'), name='job_version_limit_positive'),
        ),
        migrations.AddConstraint(
            model_name='jobversion',
            constraint=models.CheckConstraint(condition=models.Q(('delivery__in', ['at_least_once', 'at_most_once'])), name='job_version_delivery_known'),
        ),
        migrations.AddIndex(
            model_name='schedule',
            index=models.Index(condition=models.Q(('next_fire_at__isnull', False)), fields=['next_fire_at'], name='schedule_due'),
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
            constraint=models.CheckConstraint(condition=models.Q(('jitter_seconds__gte', 0)), name='schedule_jitter_not_negative'),
        ),
        migrations.AddConstraint(
            model_name='schedule',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('next_fire_at__isnull', True), ('next_instant__isnull', True)), models.Q(('next_fire_at__gte', models.F('next_instant')), ('next_fire_at__isnull', False), ('next_instant__isnull', False)), _connector='OR'), name='schedule_fires_at_or_after_its_instant'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('state', 'ready')), fields=['rank'], name='execution_ready'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('state', 'backing_off')), fields=['retry_at'], name='execution_backing_off'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('state__in', ['queued', 'claimed', 'running'])), fields=['worker', 'job'], name='execution_active'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('state__in', ['backing_off', 'blocked', 'claimed', 'queued', 'ready', 'running'])), fields=['job'], name='execution_unfinished_by_job'),
        ),
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(fields=['job', '-id'], name='execution_list_by_job'),
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
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['backing_off', 'blocked', 'cancelled', 'claimed', 'failed', 'missed', 'queued', 'ready', 'running', 'skipped', 'succeeded', 'timed_out'])), name='execution_state_known'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(('trigger__in', ['schedule', 'manual', 'dependency'])), name='execution_trigger_known'),
        ),
        migrations.AddConstraint(
            model_name='execution',
            constraint=models.CheckConstraint(condition=models.Q(('reason__isnull', True), ('reason__in', ['exit', 'timeout', 'out_of_memory', 'cancelled', 'lost', 'released', 'artifact_mismatch', 'artifact_unavailable', 'sandbox_error']), _connector='OR'), name='execution_reason_known'),
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
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.UniqueConstraint(fields=('execution', 'number'), name='attempt_number_once'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at__isnull', True), ('reason__isnull', True)), models.Q(('ended_at__isnull', False), ('reason__in', ['exit', 'timeout', 'out_of_memory', 'cancelled', 'lost', 'released', 'artifact_mismatch', 'artifact_unavailable', 'sandbox_error']), ('reason__isnull', False)), _connector='OR'), name='attempt_reason_iff_ended'),
        ),
    ]
