"""API tokens. Only digests are stored, so reading the database gives no access.

A revoked token stays as a row: the list shows it, and its digest is never valid again.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from jobs.domain import limits
from jobs.models.ids import new_id


class TokenScope(models.TextChoices):
    READ = "read"  # read everything its owner may read
    SUBMIT = "submit"  # also create and run jobs and upload artifacts
    OPERATE = "operate"  # also edit, cancel, retry and delete
    ADMIN = "admin"  # everything its owner may do, including secrets and tokens
    WORKER = "worker"  # only run a worker


# Each scope includes those before it; WORKER is separate.
SCOPE_LADDER = (TokenScope.READ, TokenScope.SUBMIT, TokenScope.OPERATE, TokenScope.ADMIN)


# Wildcard instead of names; no secret can have this name.
ALL_SECRETS = "*"


class ApiToken(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scope = models.CharField(
        max_length=16,
        choices=TokenScope.choices,
        default=TokenScope.READ,
        help_text=(
            "Read, submit, operate, admin: each includes the previous ones. Worker: only for `./punctual worker`."
        ),
    )
    pool = models.CharField(
        max_length=63,
        blank=True,
        default="",
        db_default="",
        help_text="Worker tokens only: the pool that they may join. Empty: any pool, and so any work.",
    )
    max_workers = models.PositiveSmallIntegerField(
        default=1,
        db_default=1,
        validators=[MinValueValidator(1), MaxValueValidator(limits.MAX_WORKERS_PER_TOKEN)],
        help_text="Worker tokens only: maximum number of workers at the same time.",
    )
    secrets = ArrayField(
        models.CharField(max_length=63),
        blank=True,
        default=list,
        db_default=models.Value([ALL_SECRETS], ArrayField(models.CharField(max_length=63))),
        help_text="Names of the secrets that it may grant to jobs, separated by commas. *: all.",
    )
    password_mark = models.CharField(
        max_length=64,
        default="",
        db_default="",
        editable=False,
        help_text="Mark of the owner's password when the token was created.",
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
