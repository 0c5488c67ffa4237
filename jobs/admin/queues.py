"""Editable page of queues."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import transaction
from django.db.models import Field, QuerySet
from django.forms import Field as FormField
from django.forms import ModelForm
from django.http import HttpRequest

from jobs.admin.base import ServiceWrittenAdmin
from jobs.dispatch.queues import DEFAULT_QUEUE, delete_queue, pause_queues, resume_queues, save_queue
from jobs.models import Queue


@admin.register(Queue)
class QueueAdmin(ServiceWrittenAdmin[Queue]):
    list_display = ["name", "pool", "priority", "max_concurrency", "aging_seconds", "paused", "team"]
    list_select_related = ["team"]
    autocomplete_fields = ["team"]
    list_filter = ["pool", "paused"]
    search_fields = ["name"]
    ordering = ["name"]
    actions = ["pause", "resume"]

    @admin.action(description="Pause selected queues", permissions=["change"])
    def pause(self, request: HttpRequest, rows: QuerySet[Queue]) -> None:
        count = pause_queues(rows.values_list("id", flat=True))
        self.message_user(request, f"Paused {count}: no executions are placed; running ones continue.")

    @admin.action(description="Resume selected queues", permissions=["change"])
    def resume(self, request: HttpRequest, rows: QuerySet[Queue]) -> None:
        self.message_user(request, f"Resumed {resume_queues(rows.values_list('id', flat=True))}.")

    def save_model(self, request: HttpRequest, obj: Queue, form: ModelForm[Queue], change: bool) -> None:
        save_queue(obj, changed=form.changed_data if change else None)

    def delete_model(self, request: HttpRequest, obj: Queue) -> None:
        delete_queue(obj)

    def has_delete_permission(self, request: HttpRequest, obj: Queue | None = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or obj.name != DEFAULT_QUEUE)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        with transaction.atomic():
            for queue in queryset.exclude(name=DEFAULT_QUEUE):
                delete_queue(queue)

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any) -> FormField | None:
        # Detects changes against the values the form showed, not against the row at the time of saving.
        return super().formfield_for_dbfield(db_field, request, show_hidden_initial=True, **kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Queue | None = None) -> list[str]:
        # Jobs refer to queues by name.
        return ["name"] if obj else []
