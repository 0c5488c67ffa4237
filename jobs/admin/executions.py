"""Pages of executions, their attempts and logs; actions call the services."""

from __future__ import annotations

from functools import partial
from typing import Protocol
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.handlers.exception import response_for_exception
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.admin.base import ReadOnlyAdmin, ReadOnlyInline
from jobs.admin.execution_log import await_log_rows, build_log_page
from jobs.admin.state_badge import render_badge
from jobs.api.framework.deferred_response import defer_response
from jobs.definitions.lifecycle import cancel_execution
from jobs.dispatch.explain import explain_execution
from jobs.domain.errors import StorageUnavailable
from jobs.domain.states import ACTIVE, HELD, State
from jobs.execution.dead_letters import dismiss_dead_letter
from jobs.execution.manual_retries import redrive_dead_letter, retry_execution
from jobs.execution.progress import format_progress
from jobs.models import Attempt, Execution


class ExecutionCommand(Protocol):
    def __call__(self, execution_id: UUID, /, *, by: str) -> object: ...


class StateFilter(admin.ChoicesFieldListFilter):
    """Filters by state, and by the phase, which is indexed."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Execution]) -> QuerySet[Execution] | None:
        rows = super().queryset(request, queryset)
        state = self.lookup_val[-1] if self.lookup_val else State.SUCCEEDED.value
        if rows is None or state == State.SUCCEEDED:
            return rows
        return rows.filter(phase=HELD if state in ACTIVE else state)


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
        "job", "state_badge", "progress_text", "attempt", "exit_code", "reason", "dead_letter", "scheduled_for",
        "started_at", "duration", "worker",
    ]  # fmt: skip
    list_filter = [("state", StateFilter), "dead_letter", "trigger", "queue"]
    list_select_related = ["job", "worker"]
    search_fields = ["=id", "=job__id", "=run_id", "=retry_of", "job__name"]
    ordering = ["-id"]
    inlines = [AttemptInline]
    exclude = ["progress"]
    readonly_fields = ["explanation", "progress_text", "log"]
    actions = ["cancel", "retry", "redrive", "dismiss"]

    def get_urls(self) -> list[URLPattern]:
        views = {"log": self.log_view, "log_next": self.next_view}
        urls = [
            path(f"<uuid:execution_id>/{name}/", self.admin_site.admin_view(view), name=f"jobs_execution_{name}")
            for name, view in views.items()
        ]
        return [*urls, *super().get_urls()]

    def log_view(self, request: HttpRequest, execution_id: UUID) -> HttpResponse:
        execution = self._get_visible(request, execution_id)
        try:
            context = self.admin_site.each_context(request) | build_log_page(request, execution)
        except StorageUnavailable as error:
            self.message_user(request, str(error), messages.ERROR)
            return redirect("admin:jobs_execution_change", execution_id)
        title = f"Log of {execution.job.name}"
        return TemplateResponse(
            request, "admin/jobs/execution/log.html", context | {"execution": execution, "title": title}
        )

    def next_view(self, request: HttpRequest, execution_id: UUID) -> HttpResponseBase:
        steps = await_log_rows(request, self._get_visible(request, execution_id))
        return defer_response(steps, finish=lambda response: response, fail=partial(response_for_exception, request))

    def _get_visible(self, request: HttpRequest, execution_id: UUID) -> Execution:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return get_object_or_404(self.get_queryset(request).select_related("job"), pk=execution_id)

    @admin.action(description="Cancel selected executions", permissions=["operate"])
    def cancel(self, request: HttpRequest, rows: QuerySet[Execution]) -> None:
        self._run_command(request, rows, "Cancelled", cancel_execution)

    @admin.action(description="Retry selected executions", permissions=["operate"])
    def retry(self, request: HttpRequest, rows: QuerySet[Execution]) -> None:
        self._run_command(request, rows, "Retried", retry_execution)

    @admin.action(description="Redrive selected dead letters", permissions=["operate"])
    def redrive(self, request: HttpRequest, rows: QuerySet[Execution]) -> None:
        self._run_command(request, rows, "Redrove", redrive_dead_letter)

    @admin.action(description="Dismiss selected dead letters", permissions=["operate"])
    def dismiss(self, request: HttpRequest, rows: QuerySet[Execution]) -> None:
        self._run_command(request, rows, "Dismissed", dismiss_dead_letter)

    def _run_command(
        self, request: HttpRequest, rows: QuerySet[Execution], done: str, command: ExecutionCommand
    ) -> None:
        by = request.user.get_username()
        count = self.run_for_each(
            request,
            rows.select_related(None).only("id"),
            lambda execution: command(execution.id, by=by),
            describe=lambda execution: f"{execution.id}: ",
        )
        if count:
            self.message_user(request, f"{done} {count} execution{'' if count == 1 else 's'}.", messages.SUCCESS)

    @admin.display(description="why it is waiting")
    def explanation(self, execution: Execution) -> str:
        return explain_execution(execution.id).words

    @admin.display(description="progress")
    def progress_text(self, execution: Execution) -> str:
        return format_progress(execution)

    @admin.display(description="log")
    def log(self, execution: Execution) -> SafeString:
        return format_html('<a href="{}">Show log</a>', reverse("admin:jobs_execution_log", args=[execution.id]))

    @admin.display(description="state", ordering="state")
    def state_badge(self, execution: Execution) -> SafeString:
        return render_badge(execution.state)

    @admin.display(description="duration")
    def duration(self, execution: Execution) -> str:
        if execution.started_at is None or execution.ended_at is None:
            return ""
        return f"{(execution.ended_at - execution.started_at).total_seconds():.2f}\u00a0s"
