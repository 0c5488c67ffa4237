"""Workers: what they can do, how much they can hold, and until when their word counts.

The lease is renewed every few seconds, so `lease_until` and `usage` stand in no index: the update stays in its page.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from jobs.messages import Transport
from jobs.models.ids import new_id
from jobs.protocol import MAX_REFUSAL_LENGTH


class WorkerStatus(models.TextChoices):
    ONLINE = "online"
    SUSPECT = "suspect"  # took nothing of what was placed on it; gets nothing new until it takes a message
    DRAINING = "draining"  # finishes what it holds, takes nothing new
    LOST = "lost"  # its lease ended
    OFFLINE = "offline"  # it said goodbye


# It keeps its lease and finishes what it holds.
LIVING = (WorkerStatus.ONLINE, WorkerStatus.SUSPECT, WorkerStatus.DRAINING)


class Worker(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=200, unique=True)
    pool = models.CharField(max_length=63, default="default")
    host = models.CharField(max_length=255)
    instance = models.UUIDField(help_text="Kept in its state directory: tells a restart from another of its name.")
    incarnation = models.PositiveBigIntegerField(help_text="Grows with every registration; older ones are fenced off.")
    status = models.CharField(max_length=16, choices=WorkerStatus.choices)
    lease_until = models.DateTimeField()
    capabilities = ArrayField(models.CharField(max_length=63), default=list)
    details = models.JSONField(default=dict)
    slots = models.PositiveIntegerField()
    cpu = models.FloatField()
    memory_mb = models.PositiveIntegerField()
    disk_mb = models.PositiveIntegerField()
    resources = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    usage = models.JSONField(null=True, help_text="What it used, and when: its last renewal's words.")
    refusal = models.CharField(
        max_length=MAX_REFUSAL_LENGTH,
        blank=True,
        default="",
        db_default="",
        help_text="Why it is given nothing, in its own words: its sandbox failed its test. Empty: it takes work.",
    )
    registered_at = models.DateTimeField()
    transport = models.CharField(
        max_length=16,
        choices=[(transport.value, transport.value) for transport in Transport],
        default=Transport.CELERY.value,
        db_default=Transport.CELERY.value,
        help_text="How it hears of its work: from its Celery queue, or by asking over HTTP.",
    )
    token = models.ForeignKey(
        "jobs.ApiToken",
        null=True,
        on_delete=models.SET_NULL,
        related_name="workers",
        help_text="What it registered with over HTTP: only that token may speak for it.",
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(status__in=WorkerStatus.values), name="worker_status_known"),
            models.CheckConstraint(condition=Q(slots__gte=1), name="worker_has_a_slot"),
            models.CheckConstraint(
                condition=Q(transport__in=[transport.value for transport in Transport]), name="worker_transport_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name
