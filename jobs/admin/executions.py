"""Executions and their attempts: looked at here, moved by the services alone."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from jobs.admin.badges import badge
from jobs.admin.read_only import ReadOnlyAdmin, ReadOnlyInline
from jobs.models import Attempt, Execution
from jobs.services.explaining import explain_execution


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
        "job", "state_badge", "attempt", "exit_code", "reason", "dead_letter", "scheduled_for", "started_at", "took",
        "worker",
    ]  # fmt: skip
    list_filter = ["state", "dead_letter", "trigger", "queue"]
    list_select_related = ["job", "worker"]
    search_fields = ["=id", "=job__id", "=run_id", "=retry_of", "job__name"]
    ordering = ["-id"]
    inlines = [AttemptInline]
    readonly_fields = ["why_it_waits"]

    @admin.display(description="why it waits")
    def why_it_waits(self, execution: Execution) -> str:
        return explain_execution(execution.id).words

    @admin.display(description="state", ordering="state")
    def state_badge(self, execution: Execution) -> SafeString:
        return badge(execution.state)

    @admin.display(description="took")
    def took(self, execution: Execution) -> str:
        if execution.started_at is None or execution.ended_at is None:
            return ""
        return f"{(execution.ended_at - execution.started_at).total_seconds():.2f}\u00a0s"
