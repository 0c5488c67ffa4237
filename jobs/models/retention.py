"""How far back the history reaches: one row, which retention writes and the auditor reads."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class RetentionMark(models.Model):
    """`pruned_before` never goes back, and is written with the first deletion that it covers or before it."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    pruned_before = models.DateTimeField(
        null=True, help_text="Instants before this one may have lost their executions and their history."
    )
    cursor = models.UUIDField(null=True, help_text="The last execution that the present round has looked at.")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="retention_mark_is_one_row")]

    def __str__(self) -> str:
        return f"pruned before {self.pruned_before}"
