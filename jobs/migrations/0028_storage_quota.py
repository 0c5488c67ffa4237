"""What an owner keeps in the object store, and may keep; artifacts that were deleted while history still names them."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import jobs.models.ids

OWNERS_OF_OUTPUTS = """
UPDATE jobs_output o SET owner_id = j.owner_id
  FROM jobs_attempt a JOIN jobs_execution e ON e.id = a.execution_id JOIN jobs_job j ON j.id = e.job_id
 WHERE a.id = o.attempt_id
"""


class Migration(migrations.Migration):
    # Rows are filled and then the column is altered: in one transaction Postgres refuses that over pending triggers.
    atomic = False
    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL), ("jobs", "0027_secrets")]

    operations = [
        migrations.AddField("artifact", "deleted_at", models.DateTimeField(
            editable=False,
            help_text="Its bytes are gone; the row stays for versions that nothing runs any more.",
            null=True,
        )),
        migrations.AddIndex("artifact", models.Index(
            condition=models.Q(("deleted_at__isnull", True)),
            fields=["owner"],
            include=("size",),
            name="artifact_bytes_by_owner",
        )),
        migrations.AddField("output", "owner", models.ForeignKey(
            db_index=False,
            null=True,
            on_delete=django.db.models.deletion.PROTECT,
            related_name="outputs",
            to=settings.AUTH_USER_MODEL,
        )),
        migrations.RunSQL(OWNERS_OF_OUTPUTS, migrations.RunSQL.noop),
        migrations.AlterField("output", "owner", models.ForeignKey(
            db_index=False,
            on_delete=django.db.models.deletion.PROTECT,
            related_name="outputs",
            to=settings.AUTH_USER_MODEL,
        )),
        migrations.AddIndex("output", models.Index(fields=["owner"], include=("size",), name="output_bytes_by_owner")),
        migrations.CreateModel(
            name="OwnerQuota",
            fields=[
                ("id", models.UUIDField(
                    default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False
                )),
                ("storage_mb", models.PositiveIntegerField(
                    help_text="Artifacts and published outputs together, in megabytes; 0: without limit."
                )),
                ("owner", models.OneToOneField(
                    on_delete=django.db.models.deletion.CASCADE, related_name="quota", to=settings.AUTH_USER_MODEL
                )),
            ],
        ),
    ]
