"""Read-only page of calendars; an edit recomputes schedules and goes through the API."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from jobs.admin.base import ReadOnlyAdmin, ReadOnlyInline
from jobs.models import Calendar, Schedule


class UsedByInline(ReadOnlyInline[Schedule]):
    model = Schedule
    fields = ["job", "kind", "expression", "timezone", "next_instant"]
    verbose_name_plural = "used by"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        return super().get_queryset(request).select_related("job").order_by("id")


@admin.register(Calendar)
class CalendarAdmin(ReadOnlyAdmin[Calendar]):
    list_display = ["name", "owner", "number_of_dates", "used_by", "updated_at"]
    list_select_related = ["owner"]
    search_fields = ["name", "=id", "owner__username"]
    ordering = ["-id"]
    fields = ["id", "name", "owner", "dates", "created_at", "updated_at"]
    readonly_fields = ["id", "created_at", "updated_at"]
    inlines = [UsedByInline]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Calendar]:
        return super().get_queryset(request).annotate(users=Count("schedules"))

    @admin.display(description="dates")
    def number_of_dates(self, calendar: Calendar) -> int:
        return len(calendar.dates)

    @admin.display(description="schedules")
    def used_by(self, calendar: Calendar) -> int:
        count: int = vars(calendar)["users"]
        return count
