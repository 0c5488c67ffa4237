"""API tokens: only their digest is stored, so a read of the database gives nobody access."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from jobs.models.ids import new_id


class TokenScope(models.TextChoices):
    ALL = "all"  # whatever its owner may do
    WORKER = "worker"  # to be a worker, and nothing else


class ApiToken(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scope = models.CharField(
        max_length=16,
        choices=TokenScope.choices,
        default=TokenScope.ALL,
        help_text="Worker: for `./punctual worker`; it reads nothing and runs what is placed on it.",
    )
    pool = models.CharField(
        max_length=63,
        blank=True,
        default="",
        db_default="",
        help_text="Of a worker's token: the only pool that it may join. Empty: any, and with it any work.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "API token"
        constraints = [
            models.CheckConstraint(condition=models.Q(scope__in=TokenScope.values), name="api_token_scope_known"),
        ]

    def __str__(self) -> str:
        return self.name
