"""Workers, as they announced themselves."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString

from jobs.admin.badges import badge
from jobs.admin.read_only import ReadOnlyAdmin
from jobs.models import Worker


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin[Worker]):
    list_display = ["name", "status_badge", "lease_until", "pool", "host", "slots", "cpu", "memory_mb", "able_to"]
    list_filter = ["status", "pool"]
    search_fields = ["name", "host", "=id"]
    ordering = ["name"]

    @admin.display(description="status", ordering="status")
    def status_badge(self, worker: Worker) -> SafeString:
        return badge(worker.status)

    @admin.display(description="capabilities")
    def able_to(self, worker: Worker) -> str:
        return ", ".join(worker.capabilities)
