"""When a beat last looked for lost workers, and since when without a gap."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0014_counters")]

    operations = [
        migrations.CreateModel(
            name="ReaperStamp",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("stamped_at", models.DateTimeField()),
                (
                    "unbroken_since",
                    models.DateTimeField(help_text="Passes have followed each other without a gap since then."),
                ),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="reaper_stamp_is_one")],
            },
        ),
    ]
