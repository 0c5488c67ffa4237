"""The index that the sweep of blocked executions reads."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0009_housekeeping'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='execution',
            index=models.Index(condition=models.Q(('state', 'blocked')), fields=['id'], name='execution_blocked'),
        ),
    ]
