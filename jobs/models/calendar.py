"""Named sets of dates without instants, shared by any number of schedules of one owner.

A schedule keeps its effective dates in its own row, which is what firing and the history read: a calendar changes
nothing by itself, `jobs.services.calendars` rewrites the schedules that use it.
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
    dates = ArrayField(models.DateField(), default=list, help_text="Local dates without instants.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="calendar_name_once")]
        # GET /calendars
        indexes = [models.Index(fields=["owner", "-id"], name="calendar_by_owner")]

    def __str__(self) -> str:
        return self.name
