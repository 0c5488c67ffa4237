"""System tasks, as django-celery-beat's own page has them: its actions leave entries in the audit, too."""

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

from jobs.services.audit_trail import Change, record_all

admin.site.unregister(PeriodicTask)


@admin.register(PeriodicTask)
class SystemTaskAdmin(PeriodicTaskAdmin):  # type: ignore[misc]  # django-celery-beat has no types
    @admin.action(description="Enable selected tasks", permissions=["change"])
    def enable_tasks(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with _recorded(queryset):
            super().enable_tasks(request, queryset)

    @admin.action(description="Disable selected tasks", permissions=["change"])
    def disable_tasks(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with _recorded(queryset):
            super().disable_tasks(request, queryset)

    @admin.action(description="Toggle activity of selected tasks", permissions=["change"])
    def toggle_tasks(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with _recorded(queryset):
            super().toggle_tasks(request, queryset)

    @admin.action(description="Run selected tasks", permissions=["change"])
    def run_tasks(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with transaction.atomic():
            record_all([Change("system_task.run", task.pk, task.name, after={"task": task.task}) for task in queryset])
            super().run_tasks(request, queryset)


@contextmanager
def _recorded(tasks: QuerySet[Any]) -> Iterator[None]:
    with transaction.atomic():
        # By their ids: what is changed may be what they were chosen by.
        rows = PeriodicTask.objects.filter(pk__in=[task.pk for task in tasks])
        before = dict(rows.values_list("pk", "enabled"))
        yield
        record_all(
            [
                Change("system_task.edited", key, name, before={"enabled": before[key]}, after={"enabled": enabled})
                for key, name, enabled in rows.values_list("pk", "name", "enabled")
            ]
        )
