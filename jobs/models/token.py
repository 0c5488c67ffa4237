"""API tokens: only their digest is stored, so a read of the database gives nobody access.

A token that was revoked stays as a row: the list shows that it was there, and its digest is never good again.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models

from jobs.models.ids import new_id


class TokenScope(models.TextChoices):
    READ = "read"  # to look at what its owner may look at
    SUBMIT = "submit"  # also to make jobs and the artifacts they need, and to run them
    OPERATE = "operate"  # also to change, stop, repeat and delete what there is
    ADMIN = "admin"  # whatever its owner may do: also secrets and tokens
    WORKER = "worker"  # to be a worker, and nothing else


# Each includes those before it; a worker's stands apart.
LADDER = (TokenScope.READ, TokenScope.SUBMIT, TokenScope.OPERATE, TokenScope.ADMIN)


class ApiToken(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scope = models.CharField(
        max_length=16,
        choices=TokenScope.choices,
        default=TokenScope.READ,
        help_text="Read, submit, operate, admin: each includes those before it. Worker: for `./punctual worker` alone.",
    )
    pool = models.CharField(
        max_length=63,
        blank=True,
        default="",
        db_default="",
        help_text="Of a worker's token: the only pool that it may join. Empty: any, and with it any work.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Empty: never.")
    revoked_at = models.DateTimeField(null=True, editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False, help_text="To the minute.")

    class Meta:
        verbose_name = "API token"
        constraints = [
            models.CheckConstraint(condition=models.Q(scope__in=TokenScope.values), name="api_token_scope_is_one"),
        ]
        # GET /tokens: every login makes one.
        indexes = [models.Index(fields=["owner", "-id"], name="api_token_by_owner")]

    def __str__(self) -> str:
        return self.name
