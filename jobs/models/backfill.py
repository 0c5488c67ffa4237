"""Backfills: past ranges of a job's schedules that a user requested to run."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.models.ids import new_id


class BackfillState(models.TextChoices):
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


OPEN = [BackfillState.PENDING.value, BackfillState.RUNNING.value]


class Backfill(models.Model):
    """A backfill of the instants from `from_at` to `to_at`, both included; those up to `cursor` are processed."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="backfills", db_index=False)
    from_at = models.DateTimeField()
    to_at = models.DateTimeField()
    requested_by = models.CharField(max_length=150)
    state = models.CharField(max_length=16, choices=BackfillState.choices, default=BackfillState.PENDING)
    cursor = models.DateTimeField(null=True)
    created_count = models.PositiveBigIntegerField(default=0)
    expected_count = models.PositiveBigIntegerField(
        help_text="Instants without an execution at the time of the request."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    looked_at = models.DateTimeField(null=True, editable=False, help_text="When it was last advanced.")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=BackfillState.values), name="backfill_state_known"),
            models.CheckConstraint(condition=Q(to_at__gt=models.F("from_at")), name="backfill_in_order"),
            models.CheckConstraint(
                condition=Q(state__in=OPEN, ended_at__isnull=True) | (~Q(state__in=OPEN) & Q(ended_at__isnull=False)),
                name="backfill_ended_at_iff_ended",
            ),
        ]
        indexes = [
            # advance_backfills: the open ones, longest untouched first.
            models.Index(
                models.F("looked_at").asc(nulls_first=True),
                models.F("id"),
                name="backfill_by_turn",
                condition=Q(state__in=OPEN),
            ),
            # GET /jobs/…/backfills
            models.Index(fields=["job", "-id"], name="backfill_list_by_job"),
        ]

    def __str__(self) -> str:
        return f"backfill {self.id} ({self.state})"
