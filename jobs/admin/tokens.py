"""API tokens: issued here, shown once, never again."""

from __future__ import annotations

from django.contrib import admin, messages
from django.forms import ModelForm
from django.http import HttpRequest

from jobs.admin.read_only import ModelAdmin
from jobs.models import ApiToken
from jobs.services.tokens import digest_of, new_secret


@admin.register(ApiToken)
class ApiTokenAdmin(ModelAdmin[ApiToken]):
    list_display = ["name", "owner", "scope", "pool", "created_at", "expires_at"]
    list_filter = ["scope"]
    list_select_related = ["owner"]
    search_fields = ["name", "owner__username"]
    autocomplete_fields = ["owner"]
    fields = ["owner", "name", "scope", "pool", "expires_at"]
    ordering = ["-id"]

    def get_readonly_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> list[str]:
        return ["owner", "scope", "pool"] if obj else []

    def save_model(self, request: HttpRequest, obj: ApiToken, form: ModelForm[ApiToken], change: bool) -> None:
        if not change:
            secret = new_secret()
            obj.digest = digest_of(secret)
            messages.warning(request, f"The token, shown only this once: {secret}")
        super().save_model(request, obj, form, change)
