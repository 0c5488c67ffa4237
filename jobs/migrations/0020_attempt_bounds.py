"""What an attempt has written and announced so far: bounded whatever its worker says."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0019_attempt_peak_disk")]

    operations = [
        migrations.AddField(
            model_name="attempt", name="log_bytes", field=models.PositiveBigIntegerField(db_default=0, default=0)
        ),
        migrations.AddField(
            model_name="attempt", name="output_files", field=models.PositiveIntegerField(db_default=0, default=0)
        ),
        migrations.AddField(
            model_name="attempt", name="output_bytes", field=models.PositiveBigIntegerField(db_default=0, default=0)
        ),
        migrations.AddField(
            model_name="attempt",
            name="output_announced",
            field=models.CharField(
                blank=True, db_default="", default="", help_text="The hash of the last one.", max_length=64
            ),
        ),
    ]
