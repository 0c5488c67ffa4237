"""An index of artifacts by owner alone goes: two others begin with the owner, and one of them holds what is summed up."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

NAME = "jobs_artifact_owner_id_f603dc26"


class Migration(migrations.Migration):
    # Nothing concurrent can be part of a transaction.
    atomic = False
    dependencies = [("jobs", "0041_owner_lists")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    f"DROP INDEX CONCURRENTLY IF EXISTS {NAME}",
                    f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {NAME} ON jobs_artifact (owner_id)",
                ),
            ],
            state_operations=[
                migrations.AlterField(
                    "artifact",
                    "owner",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="artifacts",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
    ]
