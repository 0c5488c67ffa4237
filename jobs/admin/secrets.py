"""Secrets, by name: what is sealed in them is shown nowhere, and a new value is given through the API."""

from __future__ import annotations

from django.contrib import admin, messages
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import QuerySet
from django.http import HttpRequest

from jobs.admin.read_only import ReadOnlyAdmin
from jobs.errors import Conflict
from jobs.models import Secret
from jobs.services.secrets import delete_secret


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

    @admin.action(description="Delete selected secrets that no job is given", permissions=["operate"])
    def delete_unused(self, request: HttpRequest, rows: QuerySet[Secret]) -> None:
        count = 0
        for secret in rows:
            try:
                delete_secret(secret.id)
                count += 1
            except (Conflict, ObjectDoesNotExist) as error:
                self.message_user(request, str(error), messages.WARNING)
        if count:
            self.message_user(request, f"Deleted {count} secret{'' if count == 1 else 's'}.", messages.SUCCESS)
