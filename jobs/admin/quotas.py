"""Quotas of single owners: configuration, so they are edited here, beside what is used."""

from __future__ import annotations

from django.contrib import admin

from jobs.admin.read_only import ModelAdmin
from jobs.models import OwnerQuota
from jobs.services.storage_quota import MEGABYTE, read_use


@admin.register(OwnerQuota)
class OwnerQuotaAdmin(ModelAdmin[OwnerQuota]):
    list_display = ["owner", "storage_mb", "used", "requests_per_minute"]
    list_select_related = ["owner"]
    list_per_page = 50
    search_fields = ["owner__username"]
    autocomplete_fields = ["owner"]
    ordering = ["owner__username"]

    @admin.display(description="used MB")
    def used(self, quota: OwnerQuota) -> str:
        return f"{read_use(quota.owner_id).used_bytes / MEGABYTE:.1f}"
