"""Idempotency keys: stored responses, committed with the changes of their request, and claims of running requests."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from jobs.models.ids import new_id


class StoredAnswer(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=255, help_text="The request's Idempotency-Key.")
    route = models.CharField(max_length=255, help_text="Method and path of the request.")
    body_sha256 = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField()
    location = models.CharField(max_length=255, blank=True, default="")
    body = models.TextField()
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="stored_answer_once")]
        indexes = [
            # Expired answers, to be deleted.
            models.Index(fields=["expires_at"], name="stored_answer_over"),
        ]

    def __str__(self) -> str:
        return f"{self.route}: {self.status}"


class IdempotencyClaim(models.Model):
    """A running request with this key; if its process dies, the claim expires."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # No foreign key constraint: claims live for seconds, and every request would pay for the check.
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    key = models.CharField(max_length=255, help_text="The request's Idempotency-Key.")
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="idempotency_claim_once")]

    def __str__(self) -> str:
        return self.key
