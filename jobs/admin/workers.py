"""Workers, as they announced themselves."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from jobs.admin.badges import badge
from jobs.admin.read_only import ReadOnlyAdmin
from jobs.models import LIVING, Worker
from jobs.protocol import Registration
from jobs.services.leases import drain_worker


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin[Worker]):
    list_display = [
        "name",
        "status_badge",
        "lease_until",
        "pool",
        "host",
        "in_use",
        "cpu",
        "memory_mb",
        "able_to",
        "refuses",
    ]
    list_filter = ["status", "pool", "transport"]
    search_fields = ["name", "host", "=id"]
    ordering = ["name"]
    actions = ["drain"]

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("jobs.change_worker")

    @admin.action(description="Drain selected workers", permissions=["operate"])
    def drain(self, request: HttpRequest, rows: QuerySet[Worker]) -> None:
        """What runs there goes on; restarting the worker puts it online again."""
        drained = [w for w in rows if drain_worker(Registration(w.id, w.incarnation))]
        names = ", ".join(worker.name for worker in drained) or "nothing: those are gone"
        self.message_user(request, f"Draining {names}.")

    @admin.display(description="status", ordering="status")
    def status_badge(self, worker: Worker) -> SafeString:
        return badge(worker.status)

    @admin.display(description="refuses work", ordering="refusal")
    def refuses(self, worker: Worker) -> str:
        return Truncator(worker.refusal).chars(120)

    @admin.display(description="runs of slots", ordering="slots")
    def in_use(self, worker: Worker) -> str:
        """As its last renewal said; what a worker that is gone used is of no interest."""
        if worker.usage is None or worker.status not in LIVING:
            return f"- / {worker.slots}"
        return f"{worker.usage['runs']} / {worker.slots}"

    @admin.display(description="capabilities")
    def able_to(self, worker: Worker) -> str:
        versions = worker.details.get("runtimes")
        if not isinstance(versions, dict):
            # The worker's own words, and no more.
            versions = {}
        return ", ".join(f"{name} {versions.get(name, '')}".rstrip() for name in worker.capabilities)
