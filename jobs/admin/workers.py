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
from jobs.services.leases import order_drain

MOST_NAMES = 4


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin[Worker]):
    # As wide as a page beside the filters: the rest is on the worker's own.
    list_display = ["name", "status_badge", "lease_until", "pool", "in_use", "runtimes", "refuses"]
    exclude = ["capabilities"]
    readonly_fields = ["able_to"]
    list_filter = ["status", "pool", "transport"]
    search_fields = ["name", "host", "=id"]
    ordering = ["name"]
    actions = ["drain"]

    @admin.action(description="Drain selected workers", permissions=["operate"])
    def drain(self, request: HttpRequest, rows: QuerySet[Worker]) -> None:
        """What runs there goes on; restarting the worker puts it online again."""
        drained = [w for w in rows if order_drain(Registration(w.id, w.incarnation))]
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

    @admin.display(description="runtimes")
    def runtimes(self, worker: Worker) -> str:
        """By name, and the rest by number: all of it, with versions, is on the worker's own page."""
        versions = self._versions(worker)
        names = [name for name in worker.capabilities if name in versions] or list(worker.capabilities)
        more = len(names) - MOST_NAMES
        return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")

    @admin.display(description="capabilities")
    def able_to(self, worker: Worker) -> str:
        versions = self._versions(worker)
        return ", ".join(f"{name} {versions.get(name, '')}".rstrip() for name in worker.capabilities)

    @staticmethod
    def _versions(worker: Worker) -> dict[str, object]:
        versions = worker.details.get("runtimes")
        # The worker's own words, and no more.
        return versions if isinstance(versions, dict) else {}
