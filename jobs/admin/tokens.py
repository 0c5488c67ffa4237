"""Page that issues and revokes API tokens; a token is shown only once."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import ForeignKey, QuerySet
from django.forms import BooleanField, ModelChoiceField, ModelForm
from django.http import HttpRequest

from jobs.access.password_marks import compute_mark
from jobs.access.tokens import (
    check_expiry,
    check_name,
    check_owner,
    check_secrets,
    check_worker_options,
    compute_digest,
    compute_expiry,
    default_secrets,
    generate_secret,
    revoke_token,
)
from jobs.admin.base import ModelAdmin
from jobs.db.clock import database_now
from jobs.domain.errors import InvalidInput
from jobs.models import ApiToken, TokenScope


class ApiTokenForm(ModelForm):  # type: ignore[type-arg]  # it is not generic at run time
    """Applies the API's rules for tokens."""

    any_pool = BooleanField(
        required=False,
        help_text="Worker tokens only: required without a pool, and allows workers of all pools, with every run and"
        " secret.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "max_workers" in self.fields:
            # Worker tokens only; if omitted, the model's default applies.
            self.fields["max_workers"].required = False

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        try:
            if "name" in values:
                check_name(values["name"])
            if {"owner", "scope"} <= values.keys():
                scope = TokenScope(values["scope"])
                check_owner(owner=values["owner"], scope=scope)
                values["secrets"] = values.get("secrets") or default_secrets(scope)
                check_secrets(scope=scope, secrets=values["secrets"])
                is_worker = scope == TokenScope.WORKER
                check_worker_options(
                    scope=scope,
                    pool=values.get("pool", ""),
                    any_pool=values.get("any_pool", False),
                    max_workers=values.get("max_workers") if is_worker else None,
                )
            if "expires_at" in values and "expires_at" in self.changed_data:
                check_expiry(values["expires_at"])
        except InvalidInput as error:
            self.add_error(error.field, error.message)
        return values


@admin.register(ApiToken)
class ApiTokenAdmin(ModelAdmin[ApiToken]):
    form = ApiTokenForm
    list_display = ["name", "owner", "scope", "pool", "created_at", "expires_at", "last_used_at", "revoked_at"]
    list_filter = ["scope", ("revoked_at", admin.EmptyFieldListFilter)]
    list_select_related = ["owner"]
    search_fields = ["name", "owner__username"]
    autocomplete_fields = ["owner"]
    fields = [
        "owner", "name", "scope", "secrets", "pool", "any_pool", "max_workers", "expires_at", "last_used_at",
        "revoked_at",
    ]  # fmt: skip
    ordering = ["-id"]
    actions = ["revoke"]

    def get_readonly_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> list[str]:
        if obj is None:
            return ["last_used_at", "revoked_at"]
        # An ended token cannot be revived.
        has_ended = obj.revoked_at is not None or (obj.expires_at is not None and obj.expires_at <= database_now())
        fixed = ["last_used_at", "revoked_at", "owner", "scope", "secrets", "pool", "max_workers"]
        return [*fixed, *(["expires_at"] if has_ended else [])]

    def get_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> list[Any]:
        # Of an existing token, an empty pool means any pool.
        return [name for name in self.fields or () if obj is None or name != "any_pool"]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        defaults = {"owner": request.user.pk, "expires_at": compute_expiry(TokenScope.READ), "secrets": ""}
        return defaults | super().get_changeform_initial_data(request)

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any, Any], request: HttpRequest, **options: Any
    ) -> ModelChoiceField[Any] | None:
        """Let only superusers issue tokens for others, because a token acts for its owner."""
        if isinstance(request.user, User) and not request.user.is_superuser:
            options["queryset"] = User.objects.filter(pk=request.user.pk)
        return super().formfield_for_foreignkey(db_field, request, **options)

    def save_model(self, request: HttpRequest, obj: ApiToken, form: ModelForm[ApiToken], change: bool) -> None:
        if not change:
            secret = generate_secret()
            obj.digest = compute_digest(secret)
            obj.password_mark = compute_mark(obj.owner.password)
            messages.warning(request, f"The token, shown only once: {secret}")
        super().save_model(request, obj, form, change)

    @admin.action(description="Revoke selected tokens", permissions=["change"])
    def revoke(self, request: HttpRequest, rows: QuerySet[ApiToken]) -> None:
        count = sum(revoke_token(token.id) for token in rows)
        self.message_user(request, f"Revoked {count} token{'' if count == 1 else 's'}.", messages.SUCCESS)
