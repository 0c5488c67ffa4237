"""Read-only page of secrets without their values, which only the API can set."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from jobs.access.secrets import delete_secret
from jobs.admin.base import ReadOnlyAdmin
from jobs.models import Secret


@admin.register(Secret)
class SecretAdmin(ReadOnlyAdmin[Secret]):
    list_display = ["name", "owner", "version", "updated_at"]
    list_select_related = ["owner"]
    search_fields = ["name", "=id", "owner__username"]
    ordering = ["-id"]
    fields = ["id", "name", "owner", "version", "created_at", "updated_at"]
    readonly_fields = ["id", "created_at", "updated_at"]
    actions = ["delete_unused"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Secret]:
        return super().get_queryset(request).defer("sealed")

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("jobs.delete_secret")

    @admin.action(description="Delete selected secrets that no job uses", permissions=["operate"])
    def delete_unused(self, request: HttpRequest, rows: QuerySet[Secret]) -> None:
        count = self.run_for_each(request, rows, lambda secret: delete_secret(secret.id))
        if count:
            self.message_user(request, f"Deleted {count} secret{'' if count == 1 else 's'}.", messages.SUCCESS)
