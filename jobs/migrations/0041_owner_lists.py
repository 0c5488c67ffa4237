"""Indexes for lists of what an owner or a team has among a million others'; built beside what goes on."""

from django.contrib.postgres.operations import RemoveIndexConcurrently
from django.db import migrations, models

from jobs.migrations._repeatable import AddIndex


class Migration(migrations.Migration):
    # A concurrent build cannot be part of a transaction.
    atomic = False
    dependencies = [("jobs", "0040_references")]

    operations = [
        AddIndex(
            "job",
            models.Index(fields=["team", "-id"], name="job_by_team", condition=models.Q(("team__isnull", False))),
        ),
        AddIndex(
            "job",
            models.Index(
                fields=["team", "name", "id"],
                name="job_by_team_and_name",
                condition=models.Q(("deleted_at__isnull", True), ("team__isnull", False)),
            ),
        ),
        AddIndex("apitoken", models.Index(fields=["owner", "-id"], name="api_token_by_owner")),
        AddIndex("calendar", models.Index(fields=["owner", "-id"], name="calendar_by_owner")),
        AddIndex("secret", models.Index(fields=["owner", "-id"], name="secret_by_owner")),
        AddIndex("webhook", models.Index(fields=["owner", "-id"], name="webhook_by_owner")),
        AddIndex(
            "artifact",
            models.Index(
                fields=["owner", "-id"],
                include=["size"],
                name="artifact_by_owner",
                condition=models.Q(("deleted_at__isnull", True)),
            ),
        ),
        RemoveIndexConcurrently("artifact", "artifact_bytes_by_owner"),
    ]
