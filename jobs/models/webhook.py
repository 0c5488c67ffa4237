"""Webhooks of owners, and what was sent to them.

A delivery is inserted by the transaction that ends an execution, through a trigger: none is lost, whoever ended it.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from jobs.models.ids import new_id
from jobs.states import TERMINAL, values

EVENTS = values(TERMINAL)


class DeliveryState(models.TextChoices):
    PENDING = "pending"  # to be sent, for the first time or again
    DELIVERED = "delivered"
    FAILED = "failed"  # tried for about a day, or not to be tried


class Webhook(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="webhooks", db_index=False
    )
    name = models.CharField(max_length=100)
    url = models.CharField(max_length=2000)
    host = models.CharField(max_length=255, help_text="Of the address: what is sent to one host is counted together.")
    events = ArrayField(models.CharField(max_length=16), help_text="How executions end that it is told of.")
    job = models.ForeignKey(
        "jobs.Job", on_delete=models.CASCADE, null=True, db_index=False, help_text="Only of this job; empty: of all."
    )
    sealed = models.BinaryField(help_text="What its deliveries are signed with.")
    previous_sealed = models.BinaryField(null=True)
    previous_until = models.DateTimeField(null=True, help_text="Until then deliveries are signed with the former, too.")
    enabled = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=200, blank=True, default="")
    failing_since = models.DateTimeField(null=True, help_text="Since when nothing was delivered; empty: the last was.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="webhook_name_once"),
            models.CheckConstraint(
                condition=Q(events__contained_by=EVENTS, events__len__gte=1), name="webhook_events_known"
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
        "jobs.Execution", on_delete=models.CASCADE, null=True, db_index=False, help_text="Empty: a test."
    )
    event = models.CharField(max_length=32)
    state = models.CharField(max_length=16, choices=DeliveryState.choices, default=DeliveryState.PENDING)
    attempts = models.PositiveIntegerField(default=0, help_text="Grows with every try and never repeats: the fence.")
    tries_left = models.PositiveSmallIntegerField()
    next_try_at = models.DateTimeField(help_text="While it is being sent: when that is taken for lost.")
    tried_at = models.DateTimeField(null=True)
    status_code = models.PositiveSmallIntegerField(null=True, help_text="Of the last answer; empty: there was none.")
    error = models.CharField(max_length=500, blank=True, default="")
    response = models.TextField(blank=True, default="", help_text="How the last answer began.")
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "webhook deliveries"
        constraints = [
            # An execution ends once. Also the way from an execution that is pruned to what hangs on it.
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
