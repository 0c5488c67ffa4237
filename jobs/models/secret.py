"""Sealed secrets of owners, and the job versions that use them.

A version refers to a secret by name: a run gets the value in force at its claim, so a new value needs no new version.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from jobs.models.ids import new_id

SECRET_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"  # noqa: S105 - a pattern for names


class Secret(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="secrets", db_index=False
    )
    name = models.CharField(max_length=63)
    sealed = models.BinaryField()
    version = models.PositiveIntegerField(default=1, help_text="Increases with every new value.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="secret_name_once"),
            models.CheckConstraint(condition=Q(name__regex=SECRET_NAME), name="secret_name_plain"),
            models.CheckConstraint(condition=Q(version__gte=1), name="secret_version_counted"),
        ]
        # GET /secrets
        indexes = [models.Index(fields=["owner", "-id"], name="secret_by_owner")]

    def __str__(self) -> str:
        return self.name


class VersionSecret(models.Model):
    """A secret of the job's owner, passed to a version's program in a variable or a file."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    version = models.ForeignKey("jobs.JobVersion", on_delete=models.CASCADE, related_name="secrets", db_index=False)
    name = models.CharField(max_length=63)
    env = models.CharField(max_length=128, null=True)  # noqa: DJ001 - null: passed as a file
    path = models.CharField(max_length=1024, null=True)  # noqa: DJ001 - null: passed as a variable

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["version", "env"], name="version_secret_env_once"),
            models.UniqueConstraint(fields=["version", "path"], name="version_secret_path_once"),
            models.CheckConstraint(
                condition=Q(env__isnull=True, path__isnull=False) | Q(env__isnull=False, path__isnull=True),
                name="version_secret_env_or_path",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} in {self.env or self.path}"
