"""Read-only page of jobs with their schedules, dependencies and versions."""

from __future__ import annotations

from datetime import datetime

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from jobs.admin.base import ReadOnlyAdmin, ReadOnlyInline
from jobs.admin.state_badge import render_badge
from jobs.definitions.job_status import with_status
from jobs.models import Dependency, Job, JobVersion, Schedule


class ScheduleInline(ReadOnlyInline[Schedule]):
    model = Schedule
    fields = [
        "kind",
        "expression",
        "timezone",
        "calendar",
        "jitter_seconds",
        "catch_up",
        "next_instant",
        "quarantine_error",
    ]


class DependencyInline(ReadOnlyInline[Dependency]):
    model = Dependency
    fk_name = "job"
    fields = ["upstream", "condition"]
    verbose_name_plural = "runs after"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Dependency]:
        return super().get_queryset(request).select_related("upstream")


class VersionInline(ReadOnlyInline[JobVersion]):
    model = JobVersion
    fields = [
        "number", "runtime", "args", "queue", "priority", "cpu", "memory_mb", "disk_mb", "resources", "timeout_seconds",
        "deadline_seconds", "retry", "max_concurrency", "delivery", "network", "created_at",
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[JobVersion]:
        return super().get_queryset(request).select_related("queue").order_by("-number")


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin[Job]):
    list_display = ["name", "status", "owner", "team", "queue", "next_instant", "created_at"]
    list_filter = [
        "state",
        "current_version__queue",
        "current_version__network",
        ("deleted_at", admin.EmptyFieldListFilter),
    ]
    list_select_related = ["owner", "team", "current_version__queue"]
    search_fields = ["name", "=id"]
    ordering = ["-id"]
    fields = ["id", "name", "status", "owner", "team", "state", "created_at", "updated_at", "deleted_at"]
    readonly_fields = ["id", "status", "created_at", "updated_at", "deleted_at"]
    inlines = [ScheduleInline, DependencyInline, VersionInline]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        return with_status(super().get_queryset(request))

    @admin.display(description="status")
    def status(self, job: Job) -> SafeString:
        return render_badge(str(vars(job)["status"]))

    @admin.display(description="queue")
    def queue(self, job: Job) -> str:
        return job.current_version.queue.name if job.current_version else ""

    @admin.display(description="next")
    def next_instant(self, job: Job) -> datetime | None:
        instant: datetime | None = vars(job)["next_instant"]
        return instant
