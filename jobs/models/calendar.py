"""Calendars: named sets of excluded dates, shared by schedules of one owner.

Firing and the history read a schedule's effective dates from its own row; `jobs.scheduling.calendars` rewrites the
schedules when their calendar changes.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models

from jobs.models.ids import new_id


class Calendar(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="calendars", db_index=False
    )
    name = models.CharField(max_length=100)
    dates = ArrayField(models.DateField(), default=list, help_text="Excluded local dates.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="calendar_name_once")]
        # GET /calendars
        indexes = [models.Index(fields=["owner", "-id"], name="calendar_by_owner")]

    def __str__(self) -> str:
        return self.name
