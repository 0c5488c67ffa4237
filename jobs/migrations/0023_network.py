"""Runs with a network, and the permission that their owner needs for it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0022_inputs_and_progress")]

    operations = [
        migrations.AddField(
            model_name="jobversion",
            name="network",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AlterModelOptions(
            name="job",
            options={"permissions": [("use_network", "Can give the runs of own jobs a network")]},
        ),
    ]
