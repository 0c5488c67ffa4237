"""Audit entries: who changed what, written with the change and never updated.

Users and objects are stored as ids and names without foreign keys, because entries outlive them.
"""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from jobs.models.ids import new_id


class Via(models.TextChoices):
    API = "api"
    CLI = "cli"  # the API, by a client that identifies itself as the CLI
    ADMIN = "admin"
    SYSTEM = "system"  # a command on the server, without a request


class AuditEntry(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    at = models.DateTimeField(db_default=Now())
    actor_id = models.BigIntegerField(null=True)
    actor_name = models.CharField(max_length=150, help_text="Name of the user at that time.")
    token_id = models.UUIDField(null=True, help_text="Empty for a session, or without a request.")
    token_name = models.CharField(max_length=100, default="")
    via = models.CharField(max_length=16, choices=Via.choices)
    address = models.GenericIPAddressField(null=True)
    action = models.CharField(max_length=63)
    object_type = models.CharField(max_length=63)
    object_id = models.CharField(max_length=63)
    object_name = models.CharField(max_length=200)
    owner_id = models.BigIntegerField(
        null=True, help_text="Owner of the object, who may read the entry; the actor if the object has no owner."
    )
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)

    class Meta:
        verbose_name = "change"
        constraints = [models.CheckConstraint(condition=models.Q(via__in=Via.values), name="audit_entry_via_known")]
        # One for each filter of the list, which is ordered by id.
        indexes = [
            models.Index(fields=["owner_id", "-id"], name="audit_by_owner"),
            models.Index(fields=["actor_name", "-id"], name="audit_by_actor"),
            models.Index(fields=["object_id", "-id"], name="audit_by_object"),
            models.Index(fields=["object_type", "-id"], name="audit_by_type"),
            models.Index(fields=["action", "-id"], name="audit_by_action"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.object_name}"
