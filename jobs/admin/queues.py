"""Queues: configuration, so they are edited here."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import Field, QuerySet
from django.forms import Field as FormField
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from jobs.admin.read_only import ModelAdmin
from jobs.errors import InvalidInput
from jobs.models import Queue
from jobs.services.queues import DEFAULT, delete_queue, pause_queues, resume_queues, save_queue


@admin.register(Queue)
class QueueAdmin(ModelAdmin[Queue]):
    list_display = ["name", "pool", "priority", "max_concurrency", "aging_seconds", "paused"]
    list_filter = ["pool", "paused"]
    search_fields = ["name"]
    ordering = ["name"]
    actions = ["pause", "resume"]
    recorded_by_services = True

    @admin.action(description="Pause selected queues", permissions=["change"])
    def pause(self, request: HttpRequest, rows: QuerySet[Queue]) -> None:
        count = pause_queues(rows.values_list("id", flat=True))
        self.message_user(request, f"Paused {count}: nothing more of it is placed, and what runs goes on.")

    @admin.action(description="Resume selected queues", permissions=["change"])
    def resume(self, request: HttpRequest, rows: QuerySet[Queue]) -> None:
        self.message_user(request, f"Resumed {resume_queues(rows.values_list('id', flat=True))}.")

    def save_model(self, request: HttpRequest, obj: Queue, form: ModelForm[Queue], change: bool) -> None:
        save_queue(obj, changed=form.changed_data if change else None)

    def delete_model(self, request: HttpRequest, obj: Queue) -> None:
        delete_queue(obj)

    def has_delete_permission(self, request: HttpRequest, obj: Queue | None = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or obj.name != DEFAULT)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Queue]) -> None:
        with transaction.atomic():
            for queue in queryset.exclude(name=DEFAULT):
                delete_queue(queue)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return super().changeform_view(request, *args, **kwargs)
        except InvalidInput as error:
            self.message_user(request, f"Not saved. {error.field}: {error.message}", messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any) -> FormField | None:
        # What was changed is told from what the form showed, not from what is there when it comes back.
        return super().formfield_for_dbfield(db_field, request, show_hidden_initial=True, **kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Queue | None = None) -> list[str]:
        # Jobs are submitted to a queue by its name.
        return ["name"] if obj else []
