"""Secrets, and what ends an attempt that cannot be given its own."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q

import jobs.models.ids

REASONS = [
    "exit", "timeout", "out_of_memory", "cancelled", "lost", "released", "artifact_mismatch", "artifact_unavailable",
    "sandbox_error", "secret_unavailable", "deadline", "catch_up", "overlap", "backlog", "dependency",
]


class Migration(migrations.Migration):
    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL), ("jobs", "0026_log_search")]

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
        migrations.CreateModel(
            name="Secret",
            fields=[
                (
                    "id",
                    models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=63)),
                ("sealed", models.BinaryField()),
                ("version", models.PositiveIntegerField(default=1, help_text="Grows with every new value.")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "owner",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="secrets",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("owner", "name"), name="secret_name_once"),
                    models.CheckConstraint(
                        condition=Q(name__regex="^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"), name="secret_name_plain"
                    ),
                    models.CheckConstraint(condition=Q(version__gte=1), name="secret_version_counted"),
                ],
            },
        ),
        migrations.CreateModel(
            name="VersionSecret",
            fields=[
                (
                    "id",
                    models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=63)),
                ("env", models.CharField(max_length=128, null=True)),
                ("path", models.CharField(max_length=1024, null=True)),
                (
                    "version",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="secrets",
                        to="jobs.jobversion",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("version", "env"), name="version_secret_env_once"),
                    models.UniqueConstraint(fields=("version", "path"), name="version_secret_path_once"),
                    models.CheckConstraint(
                        condition=Q(env__isnull=True, path__isnull=False) | Q(env__isnull=False, path__isnull=True),
                        name="version_secret_env_or_path",
                    ),
                ],
            },
        ),
    ]
