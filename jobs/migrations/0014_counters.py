"""What all beats count together, for /metrics."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0013_retries")]

    operations = [
        migrations.CreateModel(
            name="Counter",
            fields=[
                ("name", models.CharField(max_length=63, primary_key=True, serialize=False)),
                ("value", models.BigIntegerField(default=0)),
            ],
        ),
    ]
