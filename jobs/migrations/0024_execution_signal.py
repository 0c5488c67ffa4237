"""The signal that ended an execution's program."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0023_network")]

    operations = [
        migrations.AddField(model_name="execution", name="signal", field=models.SmallIntegerField(null=True)),
    ]
