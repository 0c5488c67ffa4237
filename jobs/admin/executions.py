"""Executions and their attempts: looked at here, and moved by the services that the actions call."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.admin.badges import badge
from jobs.admin.execution_log import next_of_log, page_of_log
from jobs.admin.read_only import ReadOnlyAdmin, ReadOnlyInline
from jobs.errors import Conflict, NotFound, StorageUnavailable
from jobs.models import Attempt, Execution
from jobs.services.commands import cancel_execution
from jobs.services.dead_letters import dismiss_dead_letter
from jobs.services.explaining import explain_execution
from jobs.services.progress import progress_in_words
from jobs.services.retrying import redrive_dead_letter, retry_execution


class Action(Protocol):
    def __call__(self, execution_id: UUID, /, *, by: str) -> object: ...


class AttemptInline(ReadOnlyInline[Attempt]):
    model = Attempt
    fields = [
        "number", "worker", "claimed_at", "started_at", "ended_at", "reason", "exit_code", "signal", "cpu_seconds",
        "peak_memory_bytes", "peak_disk_bytes", "error",
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Attempt]:
        return super().get_queryset(request).select_related("worker").order_by("number")


@admin.register(Execution)
class ExecutionAdmin(ReadOnlyAdmin[Execution]):
    list_display = [
        "job", "state_badge", "how_far", "attempt", "exit_code", "reason", "dead_letter", "scheduled_for", "started_at",
        "took", "worker",
    ]  # fmt: skip
    list_filter = ["state", "dead_letter", "trigger", "queue"]
    list_select_related = ["job", "worker"]
    search_fields = ["=id", "=job__id", "=run_id", "=retry_of", "job__name"]
    ordering = ["-id"]
    inlines = [AttemptInline]
    exclude = ["progress"]
    readonly_fields = ["why_it_waits", "how_far", "log"]
    actions = ["cancel", "retry", "redrive", "dismiss"]

    def get_urls(self) -> list[URLPattern]:
        views = {"log": self.log_view, "log_next": self.next_view}
        own = [
            path(f"<uuid:execution_id>/{name}/", self.admin_site.admin_view(view), name=f"jobs_execution_{name}")
            for name, view in views.items()
        ]
        return [*own, *super().get_urls()]

    def log_view(self, request: HttpRequest, execution_id: UUID) -> HttpResponse:
        execution = self._visible(request, execution_id)
        try:
            context = self.admin_site.each_context(request) | page_of_log(request, execution)
        except StorageUnavailable as error:
            self.message_user(request, str(error), messages.ERROR)
            return redirect("admin:jobs_execution_change", execution_id)
        title = f"Log of {execution.job.name}"
        return TemplateResponse(
            request, "admin/jobs/execution/log.html", context | {"execution": execution, "title": title}
        )

    def next_view(self, request: HttpRequest, execution_id: UUID) -> HttpResponse:
        return next_of_log(request, self._visible(request, execution_id))

    def _visible(self, request: HttpRequest, execution_id: UUID) -> Execution:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return get_object_or_404(self.get_queryset(request).select_related("job"), pk=execution_id)

    @admin.action(description="Cancel selected executions", permissions=["operate"])
    def cancel(self, request: HttpRequest, rows: QuerySet[Execution]) -> None:
        self._each(request, rows, "Cancelled", cancel_execution)

    @admin.action(description="Retry selected executions, as new ones", permissions=["operate"])
    def retry(self, request: HttpRequest, rows: QuerySet[Execution]) -> None:
        self._each(request, rows, "Retried", retry_execution)

    @admin.action(description="Redrive selected dead letters, as new executions", permissions=["operate"])
    def redrive(self, request: HttpRequest, rows: QuerySet[Execution]) -> None:
        self._each(request, rows, "Redrove", redrive_dead_letter)

    @admin.action(description="Dismiss selected dead letters", permissions=["operate"])
    def dismiss(self, request: HttpRequest, rows: QuerySet[Execution]) -> None:
        self._each(request, rows, "Dismissed", dismiss_dead_letter)

    def _each(self, request: HttpRequest, rows: QuerySet[Execution], done: str, act: Action) -> None:
        """Each by itself, as the services do it; what one of them refuses is said and does not stop the others."""
        count = 0
        for own in rows.values_list("id", flat=True):
            try:
                act(own, by=request.user.get_username())
                count += 1
            except (Conflict, NotFound) as error:
                self.message_user(request, f"{own}: {error}", messages.WARNING)
        if count:
            self.message_user(request, f"{done} {count} execution{'' if count == 1 else 's'}.", messages.SUCCESS)

    @admin.display(description="why it waits")
    def why_it_waits(self, execution: Execution) -> str:
        return explain_execution(execution.id).words

    @admin.display(description="progress")
    def how_far(self, execution: Execution) -> str:
        return progress_in_words(execution)

    @admin.display(description="log")
    def log(self, execution: Execution) -> SafeString:
        address = reverse("admin:jobs_execution_log", args=[execution.id])
        return format_html('<a href="{}">What it wrote</a>', address)

    @admin.display(description="state", ordering="state")
    def state_badge(self, execution: Execution) -> SafeString:
        return badge(execution.state)

    @admin.display(description="took")
    def took(self, execution: Execution) -> str:
        if execution.started_at is None or execution.ended_at is None:
            return ""
        return f"{(execution.ended_at - execution.started_at).total_seconds():.2f}\u00a0s"
