"""What an owner's archived logs take, from the index alone."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0028_storage_quota")]

    operations = [
        migrations.AddIndex("attemptlog", models.Index(
            condition=models.Q(("pack_length__isnull", False)),
            fields=["owner_id"],
            include=("pack_length",),
            name="log_bytes_by_owner",
        )),
        migrations.AlterField("ownerquota", "storage_mb", models.PositiveIntegerField(
            help_text="Artifacts, published outputs and archived logs together, in megabytes; 0: without limit."
        )),
    ]
