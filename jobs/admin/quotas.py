"""Quotas of single owners: configuration, so they are edited here, beside what is used."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest

from jobs.admin.read_only import ModelAdmin
from jobs.models import OwnerQuota
from jobs.services.owner_limits import quotas_changed, read_uses
from jobs.services.storage_quota import MEGABYTE, read_use


@admin.register(OwnerQuota)
class OwnerQuotaAdmin(ModelAdmin[OwnerQuota]):
    list_display = [
        "owner", "storage_mb", "used", "jobs", "jobs_used", "concurrent_executions", "active", "requests_per_minute",
    ]  # fmt: skip
    list_select_related = ["owner"]
    list_per_page = 50
    search_fields = ["owner__username"]
    autocomplete_fields = ["owner"]
    ordering = ["owner__username"]

    @admin.display(description="used MB")
    def used(self, quota: OwnerQuota) -> str:
        return f"{read_use(quota.owner_id).used_bytes / MEGABYTE:.1f}"

    @admin.display(description="jobs used")
    def jobs_used(self, quota: OwnerQuota) -> int:
        return read_uses(quota.owner_id)[0].used

    @admin.display(description="active executions")
    def active(self, quota: OwnerQuota) -> int:
        return read_uses(quota.owner_id)[1].used

    def save_model(self, request: HttpRequest, obj: OwnerQuota, form: ModelForm[OwnerQuota], change: bool) -> None:
        super().save_model(request, obj, form, change)
        quotas_changed()

    def delete_model(self, request: HttpRequest, obj: OwnerQuota) -> None:
        super().delete_model(request, obj)
        quotas_changed()

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[OwnerQuota]) -> None:
        super().delete_queryset(request, queryset)
        quotas_changed()
