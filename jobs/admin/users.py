"""Django's page of users; a password change, the end of the user's tokens and the audit entries commit together."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse

from jobs.access.password_marks import invalidate_tokens
from jobs.models import USE_NETWORK

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(Group)
class PunctualGroupAdmin(GroupAdmin):
    def get_form(self, request: HttpRequest, obj: Group | None = None, change: bool = False, **kwargs: Any) -> Any:
        return _limit_permission_choices(super().get_form(request, obj, change, **kwargs), "permissions")


@admin.register(User)
class PunctualUserAdmin(UserAdmin):  # type: ignore[type-arg]  # it is not generic at run time
    def get_form(self, request: HttpRequest, obj: User | None = None, change: bool = False, **kwargs: Any) -> Any:
        return _limit_permission_choices(super().get_form(request, obj, change=change, **kwargs), "user_permissions")

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        with transaction.atomic():
            before = _read_password_hash(id)
            response = super().user_change_password(request, id, form_url)
            if before is not None and _read_password_hash(id) != before:
                invalidate_tokens(User.objects.get(pk=id), because="password changed")
            return response

    def save_model(self, request: HttpRequest, obj: User, form: ModelForm[User], change: bool) -> None:
        super().save_model(request, obj, form, change)
        if change and not obj.is_active and "is_active" in form.changed_data:
            invalidate_tokens(obj, because="account deactivated")


def _limit_permission_choices(form: Any, field: str) -> Any:
    """Offer only permissions that have an effect; those of tables follow from staff status."""
    if field in form.base_fields:
        form.base_fields[field].queryset = Permission.objects.filter(
            content_type__app_label="jobs", codename=USE_NETWORK
        )
    return form


def _read_password_hash(key: str) -> str | None:
    return User.objects.filter(pk=key).values_list("password", flat=True).first()
