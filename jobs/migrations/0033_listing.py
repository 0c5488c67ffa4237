"""Indexes for lists of a million jobs and their executions; built beside what goes on.

An interrupted migration may be repeated: what was built stays, and what a build left unfinished is built anew.
"""

import datetime

import django.contrib.postgres.indexes
import django.db.models.functions.text
from django.contrib.postgres.operations import RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models.lookups import GreaterThan

from jobs.migrations._repeatable import AddIndex

UNSUCCESSFUL = models.Q(("state__in", ["cancelled", "failed", "missed", "skipped", "timed_out"]))
HOUR = models.Value(datetime.timedelta(hours=1), models.DurationField())


def apart(first: str, last: str) -> models.ExpressionWrapper:
    return models.ExpressionWrapper(models.F(last) - models.F(first), models.DurationField())


DRAWN_OUT = GreaterThan(apart("scheduled_for", "fired_at"), HOUR) | GreaterThan(apart("fired_at", "ended_at"), HOUR)
LIVE = models.Q(("deleted_at__isnull", True))


class Migration(migrations.Migration):
    # A concurrent build cannot be part of a transaction.
    atomic = False
    dependencies = [("jobs", "0032_idempotency")]

    operations = [
        AddIndex("attempt", models.Index(fields=["worker", "-execution"], name="attempt_by_worker")),
        AddIndex(
            "execution",
            models.Index(condition=UNSUCCESSFUL, fields=["state", "-id"], name="execution_unsuccessful"),
        ),
        AddIndex(
            "execution",
            models.Index(condition=UNSUCCESSFUL, fields=["state", "-job"], name="execution_unsuccessful_by_job"),
        ),
        AddIndex(
            "execution",
            models.Index(
                condition=models.Q(("ended_at__isnull", False)), fields=["ended_at", "id"], name="execution_ended"
            ),
        ),
        AddIndex(
            "execution",
            models.Index(condition=DRAWN_OUT, fields=["id"], name="execution_drawn_out"),
        ),
        AddIndex("job", models.Index(condition=LIVE, fields=["-id"], name="job_live")),
        AddIndex("job", models.Index(condition=LIVE, fields=["owner", "-id"], name="job_live_by_owner")),
        AddIndex("job", models.Index(condition=LIVE, fields=["name", "id"], name="job_by_name")),
        AddIndex(
            "job", models.Index(condition=LIVE, fields=["owner", "name", "id"], name="job_by_owner_and_name")
        ),
        AddIndex(
            "job",
            models.Index(condition=models.Q(("deleted_at__isnull", False)), fields=["-id"], name="job_deleted"),
        ),
        AddIndex(
            "job",
            models.Index(
                condition=models.Q(models.Q(("state", "active"), _negated=True), ("deleted_at__isnull", True)),
                fields=["state", "-id"],
                name="job_stopped",
            ),
        ),
        AddIndex(
            "job",
            django.contrib.postgres.indexes.GinIndex(
                models.F("owner"),
                django.contrib.postgres.indexes.OpClass(
                    django.db.models.functions.text.Upper("name"), name="gin_trgm_ops"
                ),
                name="job_search",
            ),
        ),
        AddIndex("jobversion", models.Index(fields=["queue", "-job"], name="job_version_by_queue")),
        AddIndex("jobversion", models.Index(fields=["priority", "-job"], name="job_version_by_priority")),
        RemoveIndexConcurrently("job", "job_list_by_owner"),
    ]
