"""Secrets, and what ends an attempt that cannot be given its own."""

from django.db import migrations, models
from django.db.models import Q

REASONS = [
    "exit", "timeout", "out_of_memory", "cancelled", "lost", "released", "artifact_mismatch", "artifact_unavailable",
    "sandbox_error", "secret_unavailable", "deadline", "catch_up", "overlap", "backlog", "dependency",
]


class Migration(migrations.Migration):
    dependencies = [("jobs", "0024_execution_signal")]

    operations = [
        migrations.RemoveConstraint(model_name="attempt", name="attempt_reason_iff_ended"),
        migrations.RemoveConstraint(model_name="execution", name="execution_reason_known"),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(
                condition=Q(reason__isnull=True, ended_at__isnull=True)
                | Q(reason__isnull=False, reason__in=REASONS, ended_at__isnull=False),
                name="attempt_reason_iff_ended",
            ),
        ),
        migrations.AddConstraint(
            model_name="execution",
            constraint=models.CheckConstraint(
                condition=Q(reason__isnull=True) | Q(reason__in=REASONS), name="execution_reason_known"
            ),
        ),
    ]
