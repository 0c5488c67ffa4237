"""Queues: the pool that serves their executions, their priority and their concurrency limit."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q

from jobs.models.ids import new_id

NAME = RegexValidator(r"^[a-z0-9][a-z0-9_.-]{0,62}\Z", "Use lower-case letters, digits, '_', '.' and '-', at most 63.")


class Queue(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=63, unique=True, validators=[NAME])
    pool = models.CharField(max_length=63, default="default", validators=[NAME])
    priority = models.SmallIntegerField(
        default=0,
        validators=[MinValueValidator(-100), MaxValueValidator(100)],
        help_text="Added to the priority of every job of this queue.",
    )
    max_concurrency = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Active executions at once; empty: no limit.",
    )
    aging_seconds = models.FloatField(
        default=60,
        validators=[MinValueValidator(0), MaxValueValidator(86_400)],
        help_text="One step of priority is worth this many seconds of waiting.",
    )
    paused = models.BooleanField(default=False)
    team = models.ForeignKey(
        "jobs.Team",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        db_index=False,
        related_name="queues",
        help_text="Only jobs of members of this team, or of staff, may use it; empty: all jobs.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            # Together they keep `rank`, which is a time, within Postgres's range.
            models.CheckConstraint(
                condition=Q(aging_seconds__gte=0, aging_seconds__lte=86_400), name="queue_aging_within_a_day"
            ),
            models.CheckConstraint(condition=Q(priority__gte=-100, priority__lte=100), name="queue_priority_100"),
            models.CheckConstraint(
                condition=Q(max_concurrency__isnull=True) | Q(max_concurrency__gte=1), name="queue_limit_positive"
            ),
        ]

    def __str__(self) -> str:
        return self.name
