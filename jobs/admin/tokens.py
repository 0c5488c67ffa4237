"""API tokens: issued here, shown once, never again."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import ForeignKey, QuerySet
from django.forms import ModelChoiceField, ModelForm
from django.http import HttpRequest

from jobs.admin.read_only import ModelAdmin
from jobs.errors import InvalidInput
from jobs.models import ApiToken, TokenScope
from jobs.services.schedules import database_now
from jobs.services.tokens import (
    check_expiry,
    check_holder,
    check_name,
    digest_of,
    expiry_after,
    new_secret,
    revoke_token,
)


class ApiTokenForm(ModelForm):  # type: ignore[type-arg]  # it is not generic at run time
    """What the API asks of a token is asked here, too."""

    def clean(self) -> dict[str, Any]:
        told = super().clean() or self.cleaned_data
        try:
            if "name" in told:
                check_name(told["name"])
            if {"owner", "scope"} <= told.keys():
                check_holder(owner=told["owner"], scope=TokenScope(told["scope"]), pool=told.get("pool", ""))
            if "expires_at" in told and "expires_at" in self.changed_data:
                check_expiry(told["expires_at"])
        except InvalidInput as error:
            self.add_error(error.field, error.message)
        return told


@admin.register(ApiToken)
class ApiTokenAdmin(ModelAdmin[ApiToken]):
    form = ApiTokenForm
    list_display = ["name", "owner", "scope", "pool", "created_at", "expires_at", "last_used_at", "revoked_at"]
    list_filter = ["scope", ("revoked_at", admin.EmptyFieldListFilter)]
    list_select_related = ["owner"]
    search_fields = ["name", "owner__username"]
    autocomplete_fields = ["owner"]
    fields = ["owner", "name", "scope", "pool", "expires_at", "last_used_at", "revoked_at"]
    ordering = ["-id"]
    actions = ["revoke"]

    def get_readonly_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> list[str]:
        if obj is None:
            return ["last_used_at", "revoked_at"]
        # What is over stays over.
        is_over = obj.revoked_at is not None or (obj.expires_at is not None and obj.expires_at <= database_now())
        return ["last_used_at", "revoked_at", "owner", "scope", "pool", *(["expires_at"] if is_over else [])]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"owner": request.user.pk, "expires_at": expiry_after(), **super().get_changeform_initial_data(request)}

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any, Any], request: HttpRequest, **options: Any
    ) -> ModelChoiceField[Any] | None:
        """A token may do what its owner may: only who may do everything makes one for others."""
        if isinstance(request.user, User) and not request.user.is_superuser:
            options["queryset"] = User.objects.filter(pk=request.user.pk)
        return super().formfield_for_foreignkey(db_field, request, **options)

    def save_model(self, request: HttpRequest, obj: ApiToken, form: ModelForm[ApiToken], change: bool) -> None:
        if not change:
            secret = new_secret()
            obj.digest = digest_of(secret)
            messages.warning(request, f"The token, shown only this once: {secret}")
        super().save_model(request, obj, form, change)

    @admin.action(description="Revoke selected tokens", permissions=["change"])
    def revoke(self, request: HttpRequest, rows: QuerySet[ApiToken]) -> None:
        count = sum(revoke_token(token.id) for token in rows)
        self.message_user(request, f"Revoked {count} token{'' if count == 1 else 's'}.", messages.SUCCESS)
