"""django-celery-beat's page of periodic tasks, whose actions are recorded in the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib import admin
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django_celery_beat.admin import PeriodicTaskAdmin
from django_celery_beat.models import PeriodicTask

from jobs.audit.log import Change, record_changes

admin.site.unregister(PeriodicTask)


@admin.register(PeriodicTask)
class SystemTaskAdmin(PeriodicTaskAdmin):  # type: ignore[misc]  # django-celery-beat has no types
    @admin.action(description="Enable selected tasks", permissions=["change"])
    def enable_tasks(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with _audit_edits(queryset):
            super().enable_tasks(request, queryset)

    @admin.action(description="Disable selected tasks", permissions=["change"])
    def disable_tasks(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with _audit_edits(queryset):
            super().disable_tasks(request, queryset)

    @admin.action(description="Toggle activity of selected tasks", permissions=["change"])
    def toggle_tasks(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with _audit_edits(queryset):
            super().toggle_tasks(request, queryset)

    @admin.action(description="Run selected tasks", permissions=["change"])
    def run_tasks(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with transaction.atomic():
            record_changes(
                [Change("system_task.run", task.pk, task.name, after={"task": task.task}) for task in queryset]
            )
            super().run_tasks(request, queryset)


@contextmanager
def _audit_edits(tasks: QuerySet[Any]) -> Iterator[None]:
    with transaction.atomic():
        # By id, because the edit may change the columns of the original filter.
        rows = PeriodicTask.objects.filter(pk__in=[task.pk for task in tasks])
        before = dict(rows.values_list("pk", "enabled"))
        yield
        record_changes(
            [
                Change("system_task.edited", key, name, before={"enabled": before[key]}, after={"enabled": enabled})
                for key, name, enabled in rows.values_list("pk", "name", "enabled")
            ]
        )
