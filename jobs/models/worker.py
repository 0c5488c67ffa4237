"""Workers: their capabilities, capacity and lease.

The lease is renewed every few seconds, so `lease_until` and `usage` are not indexed, which allows HOT updates.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from jobs.domain.messages import Transport
from jobs.domain.worker_protocol import MAX_REFUSAL_LENGTH
from jobs.models.ids import new_id


class WorkerStatus(models.TextChoices):
    ONLINE = "online"
    SUSPECT = "suspect"  # claimed nothing that was placed on it; gets nothing new until it consumes a message
    DRAINING = "draining"  # finishes its runs, accepts nothing new
    LOST = "lost"  # its lease expired
    OFFLINE = "offline"  # it shut down
    RETIRED = "retired"  # hidden from lists after a long time lost or offline; history still refers to it


# Statuses with a lease.
LIVE_STATUSES = (WorkerStatus.ONLINE, WorkerStatus.SUSPECT, WorkerStatus.DRAINING)


class Worker(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=200, unique=True)
    pool = models.CharField(max_length=63, default="default")
    host = models.CharField(max_length=255)
    instance = models.UUIDField(
        help_text="Kept in its state directory: distinguishes a restart from another worker of the same name."
    )
    incarnation = models.PositiveBigIntegerField(help_text="Fencing token: increases with every registration.")
    status = models.CharField(max_length=16, choices=WorkerStatus.choices)
    lease_until = models.DateTimeField()
    capabilities = ArrayField(models.CharField(max_length=63), default=list)
    details = models.JSONField(default=dict)
    slots = models.PositiveIntegerField()
    cpu = models.FloatField()
    memory_mb = models.PositiveIntegerField()
    disk_mb = models.PositiveIntegerField()
    resources = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    usage = models.JSONField(null=True, help_text="Usage reported with the last renewal.")
    refusal = models.CharField(
        max_length=MAX_REFUSAL_LENGTH,
        blank=True,
        default="",
        db_default="",
        help_text="Why it accepts no work: the failed test of its sandbox. Empty: it accepts work.",
    )
    registered_at = models.DateTimeField()
    transport = models.CharField(
        max_length=16,
        choices=[(transport.value, transport.value) for transport in Transport],
        default=Transport.CELERY.value,
        db_default=Transport.CELERY.value,
        help_text="How it receives work: through its Celery queue, or by polling over HTTP.",
    )
    token = models.ForeignKey(
        "jobs.ApiToken",
        null=True,
        on_delete=models.SET_NULL,
        related_name="workers",
        help_text="The token that it registered with; only this token may act for it.",
    )
    address = models.GenericIPAddressField(null=True, help_text="Address of its last registration over HTTP.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(status__in=WorkerStatus.values), name="worker_status_known"),
            models.CheckConstraint(condition=Q(slots__gte=1), name="worker_has_a_slot"),
            models.CheckConstraint(
                condition=Q(transport__in=[transport.value for transport in Transport]), name="worker_transport_known"
            ),
        ]
        indexes = [
            # mark_lost_workers, detect_failover: live workers only.
            models.Index(fields=["pool"], name="worker_living", condition=Q(status__in=LIVE_STATUSES)),
            # GET /workers, retire_workers
            models.Index(fields=["-id"], name="worker_present", condition=~Q(status=WorkerStatus.RETIRED)),
        ]

    def __str__(self) -> str:
        return self.name
