"""When a job fires by itself.

`next_instant` is the nominal instant to be settled next and `next_fire_at` the moment (with jitter) at which it is due;
both are null once nothing more is to come, which also takes the row out of the index that beat reads.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from jobs.models.ids import new_id
from jobs.recurrence import CatchUp, Kind


class Schedule(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="schedules")
    kind = models.CharField(max_length=16, choices=[(kind.value, kind.value) for kind in Kind])
    expression = models.CharField(max_length=255)
    timezone = models.CharField(max_length=64, default="UTC")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True)
    jitter_seconds = models.FloatField(default=0)
    catch_up = models.CharField(
        max_length=16, choices=[(policy.value, policy.value) for policy in CatchUp], default=CatchUp.LATEST.value
    )
    catch_up_window_seconds = models.FloatField(null=True)
    next_instant = models.DateTimeField(null=True)
    next_fire_at = models.DateTimeField(null=True)
    quarantined_at = models.DateTimeField(null=True, help_text="When its recurrence could not be computed.")
    quarantine_error = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=[k.value for k in Kind]), name="schedule_kind_known"),
            models.CheckConstraint(
                condition=Q(catch_up__in=[c.value for c in CatchUp]), name="schedule_catch_up_known"
            ),
            models.CheckConstraint(condition=Q(jitter_seconds__gte=0), name="schedule_jitter_not_negative"),
            models.CheckConstraint(
                condition=Q(next_instant__isnull=True, next_fire_at__isnull=True)
                | Q(next_instant__isnull=False, next_fire_at__isnull=False, next_fire_at__gte=models.F("next_instant")),
                name="schedule_fires_at_or_after_its_instant",
            ),
        ]
        indexes = [
            # fire_due_schedules: the due ones in order, at any number of schedules.
            models.Index(fields=["next_fire_at"], name="schedule_due", condition=Q(next_fire_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.expression}"
