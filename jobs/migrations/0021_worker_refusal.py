"""Why a worker that is here takes no work."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0020_attempt_bounds")]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="refusal",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Why it is given nothing, in its own words: its sandbox failed its test. Empty: it takes work.",
                max_length=2000,
            ),
        ),
    ]
