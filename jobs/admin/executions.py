"""Executions and their attempts: looked at here, moved by the services alone."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from jobs.admin.badges import badge
from jobs.admin.read_only import ReadOnlyAdmin, ReadOnlyInline
from jobs.models import Attempt, Execution


class AttemptInline(ReadOnlyInline[Attempt]):
    model = Attempt
    fields = [
        "number", "worker", "claimed_at", "started_at", "ended_at", "reason", "exit_code", "signal", "cpu_seconds",
        "peak_memory_bytes", "error",
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Attempt]:
        return super().get_queryset(request).select_related("worker").order_by("number")


@admin.register(Execution)
class ExecutionAdmin(ReadOnlyAdmin[Execution]):
    list_display = [
        "id", "state_badge", "job", "trigger", "attempt", "worker", "scheduled_for", "started_at", "ended_at",
        "exit_code", "reason",
    ]  # fmt: skip
    list_filter = ["state", "trigger", "queue"]
    list_select_related = ["job", "worker"]
    search_fields = ["=id", "=job__id", "=run_id", "job__name"]
    ordering = ["-id"]
    inlines = [AttemptInline]

    @admin.display(description="state", ordering="state")
    def state_badge(self, execution: Execution) -> SafeString:
        return badge(execution.state)
