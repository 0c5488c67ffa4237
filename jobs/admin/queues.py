"""Queues: configuration, so they are edited here."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from jobs.admin.read_only import ModelAdmin
from jobs.models import Queue


@admin.register(Queue)
class QueueAdmin(ModelAdmin[Queue]):
    list_display = ["name", "pool", "priority", "max_concurrency", "aging_seconds", "paused"]
    list_filter = ["pool", "paused"]
    search_fields = ["name"]
    ordering = ["name"]

    def get_readonly_fields(self, request: HttpRequest, obj: Queue | None = None) -> list[str]:
        # Jobs are submitted to a queue by its name.
        return ["name"] if obj else []
