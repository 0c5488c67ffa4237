"""Read-only page of workers, with an action to drain them."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from jobs.admin.base import ReadOnlyAdmin
from jobs.admin.state_badge import render_badge
from jobs.domain.worker_protocol import Registration
from jobs.fleet.leases import request_drain
from jobs.models import LIVE_STATUSES, Worker, WorkerStatus

MAX_RUNTIME_NAMES = 4


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin[Worker]):
    # No wider than a page with filters; the worker's own page has the rest.
    list_display = ["name", "status_badge", "lease_until", "pool", "in_use", "runtimes", "refuses"]
    exclude = ["capabilities"]
    readonly_fields = ["capability_versions"]
    list_filter = ["status", "pool", "transport"]
    search_fields = ["name", "host", "=id"]
    ordering = ["name"]
    actions = ["drain"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        """Hide retired workers in the list unless it is filtered or searched; links from executions still work."""
        rows = super().get_queryset(request)
        is_list = request.resolver_match is not None and str(request.resolver_match.url_name).endswith("_changelist")
        is_filtered = "status__exact" in request.GET or "q" in request.GET
        return rows.exclude(status=WorkerStatus.RETIRED) if is_list and not is_filtered else rows

    @admin.action(description="Drain selected workers", permissions=["operate"])
    def drain(self, request: HttpRequest, rows: QuerySet[Worker]) -> None:
        """Give the workers no new work; restarting a worker ends the drain."""
        drained = [w for w in rows if request_drain(Registration(w.id, w.incarnation))]
        names = ", ".join(worker.name for worker in drained) or "nothing: the selected workers are gone"
        self.message_user(request, f"Draining {names}.")

    @admin.display(description="status", ordering="status")
    def status_badge(self, worker: Worker) -> SafeString:
        return render_badge(worker.status)

    @admin.display(description="refuses work", ordering="refusal")
    def refuses(self, worker: Worker) -> str:
        return Truncator(worker.refusal).chars(120)

    @admin.display(description="runs / slots", ordering="slots")
    def in_use(self, worker: Worker) -> str:
        """Return the usage of the last lease renewal; none for a worker that is gone."""
        if worker.usage is None or worker.status not in LIVE_STATUSES:
            return f"- / {worker.slots}"
        return f"{worker.usage['runs']} / {worker.slots}"

    @admin.display(description="runtimes")
    def runtimes(self, worker: Worker) -> str:
        """Return the first names and the number of the others; the worker's page lists all with versions."""
        versions = self._versions(worker)
        names = [name for name in worker.capabilities if name in versions] or list(worker.capabilities)
        more = len(names) - MAX_RUNTIME_NAMES
        return ", ".join(names[:MAX_RUNTIME_NAMES]) + (f" and {more} more" if more > 0 else "")

    @admin.display(description="capabilities")
    def capability_versions(self, worker: Worker) -> str:
        versions = self._versions(worker)
        return ", ".join(f"{name} {versions.get(name, '')}".rstrip() for name in worker.capabilities)

    @staticmethod
    def _versions(worker: Worker) -> dict[str, object]:
        versions = worker.details.get("runtimes")
        # Details are unvalidated input of the worker.
        return versions if isinstance(versions, dict) else {}
