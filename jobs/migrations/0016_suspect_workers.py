"""Workers that took nothing of what they were given, and what workers use."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0015_reaping'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='worker',
            name='worker_status_known',
        ),
        migrations.AlterField(
            model_name='worker',
            name='status',
            field=models.CharField(choices=[('online', 'Online'), ('suspect', 'Suspect'), ('draining', 'Draining'), ('lost', 'Lost'), ('offline', 'Offline')], max_length=16),
        ),
        migrations.AddField(
            model_name='worker',
            name='usage',
            field=models.JSONField(help_text="What it used, and when: its last renewal's words.", null=True),
        ),
        migrations.AddConstraint(
            model_name='worker',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['online', 'suspect', 'draining', 'lost', 'offline'])), name='worker_status_known'),
        ),
    ]
