"""Schedules, the history of their versions, and their dropped instants.

`next_instant` is the next nominal instant and `next_fire_at` the time, with jitter, at which it is due. Both are null
if no instant is left, which removes the row from the index that beat reads.
"""

from __future__ import annotations

from datetime import date

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q, QuerySet

from jobs.domain.recurrence import CatchUp, Kind
from jobs.models.ids import new_id


class LiveSchedules(models.Manager["Schedule"]):
    """Manager without the deleted schedules, which are kept only for the history."""

    def get_queryset(self) -> QuerySet[Schedule]:
        return super().get_queryset().filter(deleted_at__isnull=True)


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
    excluded_dates = ArrayField(models.DateField(), default=list, help_text="Excluded local dates.")
    calendar = models.ForeignKey(
        "jobs.Calendar", on_delete=models.PROTECT, null=True, related_name="schedules", db_index=False
    )
    own_excluded_dates = ArrayField(
        models.DateField(), null=True, help_text="With a calendar: the excluded dates in addition to the calendar's."
    )
    max_count = models.PositiveIntegerField(null=True, help_text="Maximum number of instants; empty: no limit.")
    settled_count = models.PositiveBigIntegerField(default=0)
    next_instant = models.DateTimeField(null=True)
    next_fire_at = models.DateTimeField(null=True)
    quarantined_at = models.DateTimeField(null=True, help_text="When its recurrence could not be computed.")
    quarantine_error = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    deleted_at = models.DateTimeField(null=True, editable=False)

    objects = LiveSchedules()
    with_deleted = models.Manager["Schedule"]()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=[k.value for k in Kind]), name="schedule_kind_known"),
            models.CheckConstraint(
                condition=Q(catch_up__in=[c.value for c in CatchUp]), name="schedule_catch_up_known"
            ),
            models.CheckConstraint(
                condition=Q(max_count__isnull=True) | Q(max_count__gte=1), name="schedule_max_count_positive"
            ),
            models.CheckConstraint(condition=Q(jitter_seconds__gte=0), name="schedule_jitter_not_negative"),
            models.CheckConstraint(
                condition=Q(next_instant__isnull=True, next_fire_at__isnull=True)
                | Q(next_instant__isnull=False, next_fire_at__isnull=False, next_fire_at__gte=models.F("next_instant")),
                name="schedule_fires_at_or_after_its_instant",
            ),
            models.CheckConstraint(
                condition=Q(calendar__isnull=True, own_excluded_dates__isnull=True)
                | Q(calendar__isnull=False, own_excluded_dates__isnull=False),
                name="schedule_own_dates_iff_calendar",
            ),
            models.CheckConstraint(
                condition=Q(deleted_at__isnull=True) | Q(next_instant__isnull=True), name="schedule_deleted_is_over"
            ),
        ]
        indexes = [
            # fire_due_schedules: the due ones in order, whatever the number of schedules.
            models.Index(fields=["next_fire_at"], name="schedule_due", condition=Q(next_fire_at__isnull=False)),
            # arm_idle_delays: fixed delays that wait for a run, or are stalled.
            models.Index(
                fields=["id"],
                name="schedule_unarmed_delay",
                condition=Q(
                    kind="delay", next_instant__isnull=True, deleted_at__isnull=True, quarantined_at__isnull=True
                ),
            ),
            # edit_calendar: the schedules that use a calendar.
            models.Index(fields=["calendar"], name="schedule_by_calendar", condition=Q(calendar__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.expression}"

    @property
    def written_dates(self) -> list[date]:
        """The schedule's own excluded dates as requested, without those of its calendar."""
        return self.excluded_dates if self.own_excluded_dates is None else self.own_excluded_dates


class ScheduleVersion(models.Model):
    """The definition in force for the instants in (from_at, to_at]; only `to_at` is ever updated."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="history", db_index=False)
    number = models.PositiveIntegerField()
    from_at = models.DateTimeField()
    to_at = models.DateTimeField(null=True)
    paused = models.BooleanField(default=False)
    kind = models.CharField(max_length=16)
    expression = models.CharField(max_length=255)
    timezone = models.CharField(max_length=64)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True)
    jitter_seconds = models.FloatField()
    excluded_dates = ArrayField(models.DateField(), default=list)
    max_count = models.PositiveIntegerField(null=True)
    settled_before = models.PositiveBigIntegerField(null=True, help_text="Number of instants of all earlier versions.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["schedule", "number"], name="schedule_version_number_once"),
            models.UniqueConstraint(
                fields=["schedule"], condition=Q(to_at__isnull=True), name="schedule_version_one_in_force"
            ),
            models.CheckConstraint(
                condition=Q(to_at__isnull=True) | Q(to_at__gte=models.F("from_at")), name="schedule_version_in_order"
            ),
        ]
        indexes = [
            # prune_history: ended versions except the first, which records the schedule's creation.
            models.Index(
                fields=["to_at"], name="schedule_version_over", condition=Q(to_at__isnull=False, number__gt=1)
            ),
        ]

    def __str__(self) -> str:
        return f"version {self.number} of {self.schedule_id}"


class DropReason(models.TextChoices):
    CATCH_UP = "catch_up"  # too old when firing resumed
    PAUSED = "paused"


class DroppedRange(models.Model):
    """Instants that did not fire, as a range with a count; a few missed instants are executions in `missed` instead."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="dropped", db_index=False)
    first = models.DateTimeField()
    last = models.DateTimeField()
    count = models.PositiveBigIntegerField()
    reason = models.CharField(max_length=16, choices=DropReason.choices)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(last__gte=models.F("first"), count__gte=1), name="dropped_range_holds_something"
            ),
            models.CheckConstraint(condition=Q(reason__in=DropReason.values), name="dropped_range_reason_known"),
        ]
        indexes = [models.Index(fields=["schedule", "first"], name="dropped_by_schedule")]

    def __str__(self) -> str:
        return f"{self.count} instants of {self.schedule_id}, {self.reason}"
