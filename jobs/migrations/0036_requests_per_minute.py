"""How many requests a minute an owner may make, if not as many as everybody."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0035_audit_entries")]

    operations = [
        migrations.AlterField(
            model_name="ownerquota",
            name="storage_mb",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Artifacts, published outputs and archived logs together, in megabytes; 0: without limit.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="ownerquota",
            name="requests_per_minute",
            field=models.PositiveIntegerField(
                blank=True, help_text="With all tokens together; 0: without limit.", null=True
            ),
        ),
    ]
