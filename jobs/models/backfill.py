"""A past range of a job's schedules that somebody asked to be run after all."""

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
    """The instants from `from_at` to `to_at`, both included; those up to `cursor` are settled."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="backfills", db_index=False)
    from_at = models.DateTimeField()
    to_at = models.DateTimeField()
    requested_by = models.CharField(max_length=150)
    state = models.CharField(max_length=16, choices=BackfillState.choices, default=BackfillState.PENDING)
    cursor = models.DateTimeField(null=True)
    created_count = models.PositiveBigIntegerField(default=0)
    expected_count = models.PositiveBigIntegerField(help_text="Instants that had no execution when it was asked for.")
    created_at = models.DateTimeField(auto_now_add=True)
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
            # advance_backfills: the open ones, oldest first.
            models.Index(fields=["id"], name="backfill_open", condition=Q(state__in=OPEN)),
            # GET /jobs/…/backfills
            models.Index(fields=["job", "-id"], name="backfill_list_by_job"),
        ]

    def __str__(self) -> str:
        return f"backfill {self.id} ({self.state})"
