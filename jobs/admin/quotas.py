"""Editable page of per-user quotas, with current usage."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest

from jobs.access.quotas import on_quotas_changed, read_quota_usages
from jobs.admin.base import ModelAdmin
from jobs.models import OwnerQuota
from jobs.storage.quota import MEGABYTE, read_usage


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
        return f"{read_usage(quota.owner_id).used_bytes / MEGABYTE:.1f}"

    @admin.display(description="jobs used")
    def jobs_used(self, quota: OwnerQuota) -> int:
        return read_quota_usages(quota.owner_id)[0].used

    @admin.display(description="active executions")
    def active(self, quota: OwnerQuota) -> int:
        return read_quota_usages(quota.owner_id)[1].used

    def save_model(self, request: HttpRequest, obj: OwnerQuota, form: ModelForm[OwnerQuota], change: bool) -> None:
        super().save_model(request, obj, form, change)
        on_quotas_changed()

    def delete_model(self, request: HttpRequest, obj: OwnerQuota) -> None:
        super().delete_model(request, obj)
        on_quotas_changed()

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[OwnerQuota]) -> None:
        super().delete_queryset(request, queryset)
        on_quotas_changed()
