"""Webhooks of owners and their deliveries.

A trigger inserts deliveries in the transaction that finishes an execution, so that none is lost.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from jobs.domain.states import TERMINAL, sorted_values
from jobs.models.ids import new_id

WEBHOOK_EVENTS = sorted_values(TERMINAL)


class DeliveryState(models.TextChoices):
    PENDING = "pending"  # to be sent or retried
    DELIVERED = "delivered"
    FAILED = "failed"  # given up after about a day, or not retryable


class Webhook(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="webhooks", db_index=False
    )
    name = models.CharField(max_length=100)
    url = models.CharField(max_length=2000)
    host = models.CharField(max_length=255, help_text="Host of the URL; concurrent deliveries are limited by host.")
    events = ArrayField(models.CharField(max_length=16), help_text="Outcomes that are delivered.")
    job = models.ForeignKey(
        "jobs.Job",
        on_delete=models.CASCADE,
        null=True,
        db_index=False,
        help_text="Only executions of this job; empty: all jobs.",
    )
    sealed = models.BinaryField(help_text="Sealed signing secret.")
    previous_sealed = models.BinaryField(null=True)
    previous_until = models.DateTimeField(
        null=True, help_text="Until then deliveries are also signed with the previous secret."
    )
    enabled = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=200, blank=True, default="")
    failing_since = models.DateTimeField(
        null=True, help_text="Start of the current series of failed deliveries; empty: the last one succeeded."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="webhook_name_once"),
            models.CheckConstraint(
                condition=Q(events__contained_by=WEBHOOK_EVENTS, events__len__gte=1), name="webhook_events_known"
            ),
            models.CheckConstraint(
                condition=Q(previous_sealed__isnull=True) | Q(previous_until__isnull=False),
                name="webhook_previous_secret_ends",
            ),
        ]
        # GET /webhooks
        indexes = [models.Index(fields=["owner", "-id"], name="webhook_by_owner")]

    def __str__(self) -> str:
        return self.name


class WebhookDelivery(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    execution = models.ForeignKey(
        "jobs.Execution", on_delete=models.CASCADE, null=True, db_index=False, help_text="Empty for a test."
    )
    event = models.CharField(max_length=32)
    state = models.CharField(max_length=16, choices=DeliveryState.choices, default=DeliveryState.PENDING)
    attempts = models.PositiveIntegerField(default=0, help_text="Fencing token: increases with every try.")
    tries_left = models.PositiveSmallIntegerField()
    next_try_at = models.DateTimeField(
        help_text="When it is sent next; while it is being sent: when the sender is considered lost."
    )
    tried_at = models.DateTimeField(null=True)
    status_code = models.PositiveSmallIntegerField(
        null=True, help_text="Status of the last response; empty: there was none."
    )
    error = models.CharField(max_length=500, blank=True, default="")
    response = models.TextField(blank=True, default="", help_text="Beginning of the last response.")
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "webhook deliveries"
        constraints = [
            # An execution finishes once. Also serves pruning, which deletes by execution.
            models.UniqueConstraint(fields=["execution", "webhook"], name="webhook_delivery_once"),
            models.CheckConstraint(condition=Q(state__in=DeliveryState.values), name="webhook_delivery_state_known"),
            models.CheckConstraint(
                condition=Q(state=DeliveryState.PENDING, ended_at__isnull=True)
                | (~Q(state=DeliveryState.PENDING) & Q(ended_at__isnull=False)),
                name="webhook_delivery_ended_iff_over",
            ),
        ]
        indexes = [
            models.Index(
                fields=["webhook", "next_try_at"], name="webhook_delivery_pending", condition=Q(state="pending")
            ),
            models.Index(fields=["webhook", "-id"], name="webhook_delivery_list"),
            models.Index(fields=["webhook", "-id"], name="webhook_delivery_failed", condition=Q(state="failed")),
        ]

    def __str__(self) -> str:
        return f"{self.event} to {self.webhook_id}"
