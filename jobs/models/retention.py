"""How far back history reaches: one row, which retention writes and audits read."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class RetentionMark(models.Model):
    """The progress of retention. `pruned_before` never decreases, and is committed before or with its deletions."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    pruned_before = models.DateTimeField(
        null=True, help_text="Executions and history of earlier instants may be pruned."
    )
    cursor = models.UUIDField(null=True, help_text="Position of the current round.")
    round_ended_at = models.DateTimeField(null=True, help_text="When a round last found nothing more to delete.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="retention_mark_is_one_row")]

    def __str__(self) -> str:
        return f"pruned before {self.pruned_before}"
