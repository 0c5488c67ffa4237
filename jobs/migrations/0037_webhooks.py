"""Webhooks, their deliveries, and the trigger by which the transaction that ends an execution announces it to them.

Of the tables that there were, only that of executions is locked, for the trigger: what ties the new ones to the others
comes with 0040, one by one.
"""

import django.contrib.postgres.fields
import django.db.models.deletion
import jobs.models.ids
from django.conf import settings
from django.db import migrations, models


# Whoever ends an execution, by whichever statement: none can forget it. The conditions are judged before anything is
# called, so that other changes of executions cost nothing. Ids are UUIDv7, as everywhere: they sort by time.
# The lock keeps a webhook that is being deleted from taking the end of an execution down with it.
TRIGGERS = """
CREATE FUNCTION jobs_announce_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Where nobody has any, this is all that an end costs.
    IF NOT EXISTS (SELECT FROM jobs_webhook) THEN
        RETURN NULL;
    END IF;
    INSERT INTO jobs_webhookdelivery (
        id, webhook_id, execution_id, event, state, attempts, tries_left, next_try_at, error, response, created_at)
    SELECT encode(set_bit(set_bit(overlay(
               uuid_send(gen_random_uuid())
               PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
               FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid,
           w.id, NEW.id, 'execution.' || NEW.state, 'pending', 0, 10, clock_timestamp(), '', '', clock_timestamp()
      FROM jobs_job j
      JOIN jobs_webhook w ON w.owner_id = j.owner_id
     WHERE j.id = NEW.job_id AND w.enabled AND NEW.state = ANY(w.events) AND (w.job_id IS NULL OR w.job_id = j.id)
       FOR KEY SHARE OF w;
    RETURN NULL;
END $$;
CREATE TRIGGER execution_ended AFTER UPDATE ON jobs_execution FOR EACH ROW
    WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL) EXECUTE FUNCTION jobs_announce_end();
CREATE TRIGGER execution_never_ran AFTER INSERT ON jobs_execution FOR EACH ROW
    WHEN (NEW.ended_at IS NOT NULL) EXECUTE FUNCTION jobs_announce_end();
"""
NO_TRIGGERS = """
DROP TRIGGER execution_never_ran ON jobs_execution;
DROP TRIGGER execution_ended ON jobs_execution;
DROP FUNCTION jobs_announce_end();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0036_requests_per_minute'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Webhook',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('url', models.CharField(max_length=2000)),
                ('host', models.CharField(help_text='Of the address: what is sent to one host is counted together.', max_length=255)),
                ('events', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=16), help_text='How executions end that it is told of.', size=None)),
                ('sealed', models.BinaryField(help_text='What its deliveries are signed with.')),
                ('previous_sealed', models.BinaryField(null=True)),
                ('previous_until', models.DateTimeField(help_text='Until then deliveries are signed with the former, too.', null=True)),
                ('enabled', models.BooleanField(default=True)),
                ('disabled_reason', models.CharField(blank=True, default='', max_length=200)),
                ('failing_since', models.DateTimeField(help_text='Since when nothing was delivered; empty: the last was.', null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('job', models.ForeignKey(db_constraint=False, db_index=False, help_text='Only of this job; empty: of all.', null=True, on_delete=django.db.models.deletion.CASCADE, to='jobs.job')),
                ('owner', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='webhooks', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='WebhookDelivery',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('event', models.CharField(max_length=32)),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('delivered', 'Delivered'), ('failed', 'Failed')], default='pending', max_length=16)),
                ('attempts', models.PositiveIntegerField(default=0, help_text='Grows with every try and never repeats: the fence.')),
                ('tries_left', models.PositiveSmallIntegerField()),
                ('next_try_at', models.DateTimeField(help_text='While it is being sent: when that is taken for lost.')),
                ('tried_at', models.DateTimeField(null=True)),
                ('status_code', models.PositiveSmallIntegerField(help_text='Of the last answer; empty: there was none.', null=True)),
                ('error', models.CharField(blank=True, default='', max_length=500)),
                ('response', models.TextField(blank=True, default='', help_text='How the last answer began.')),
                ('created_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('execution', models.ForeignKey(db_constraint=False, db_index=False, help_text='Empty: a test.', null=True, on_delete=django.db.models.deletion.CASCADE, to='jobs.execution')),
                ('webhook', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='jobs.webhook')),
            ],
            options={
                'verbose_name_plural': 'webhook deliveries',
            },
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
        migrations.RunSQL(TRIGGERS, NO_TRIGGERS),
    ]
