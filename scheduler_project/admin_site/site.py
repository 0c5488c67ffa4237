"""Admin site that records everything saved or deleted on any page, including third-party ones, in the audit log.

A page whose services record the changes sets `recorded_by_services`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.contrib.admin.sites import AdminSite
from django.contrib.admin.utils import unquote
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from jobs.audit.log import Change, record_changes
from jobs.audit.snapshots import HIDDEN, Snapshot
from scheduler_project.accounts.login import RateLimitedAdminLoginForm
from scheduler_project.accounts.password_change import PasswordChange

SECRET_FIELD_WORDS = ("password", "digest", "sealed")
OBJECT_TYPE_BY_MODEL = {"apitoken": "token", "ownerquota": "quota", "periodictask": "system_task"}


class _AuditedModelAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # a mixin for pages of any model
    def construct_change_message(
        self, request: HttpRequest, form: forms.Form, formsets: Any, add: bool = False
    ) -> list[dict[str, Any]]:
        """Record the change; Django calls this after every save, in the same transaction."""
        message = super().construct_change_message(request, form, formsets, add)
        if form.changed_data and not getattr(self, "recorded_by_services", False):
            # A password form has `user` instead of `instance`.
            saved: Any = getattr(form, "instance", None) or getattr(form, "user", None)
            before = {} if add else {name: form.initial.get(name) for name in form.changed_data}
            action, after = "created" if add else "edited", _snapshot_form(form, form.cleaned_data)
            record_changes([_build_change(action, saved, _snapshot_form(form, before), after)])
        return message

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the audit log; Django's history lacks old values and changes made elsewhere."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        return redirect(f"{reverse('admin:jobs_auditentry_changelist')}?{urlencode({'q': unquote(object_id)})}")

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        if getattr(self, "recorded_by_services", False):
            super().delete_model(request, obj)
            return
        with transaction.atomic():
            record_changes([_build_change("deleted", obj, _snapshot_row(obj))])
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        if getattr(self, "recorded_by_services", False):
            super().delete_queryset(request, queryset)
            return
        with transaction.atomic():
            record_changes([_build_change("deleted", row, _snapshot_row(row)) for row in queryset])
            super().delete_queryset(request, queryset)


class AuditedAdminSite(AdminSite):
    login_form = RateLimitedAdminLoginForm

    def register(
        self,
        model_or_iterable: type[Model] | Iterable[type[Model]],
        admin_class: type[admin.ModelAdmin[Any]] | None = None,
        **options: Any,
    ) -> None:
        page = admin_class or admin.ModelAdmin
        audited = type(
            page.__name__, (_AuditedModelAdmin, page), {"__module__": page.__module__, "__doc__": page.__doc__}
        )
        super().register(model_or_iterable, audited, **options)

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """Use the password page of all users."""
        return cast("TemplateResponse", PasswordChange.as_view()(request))


def _build_change(action: str, row: Model, before: Snapshot, after: Snapshot | None = None) -> Change:
    kind = str(row._meta.model_name)
    owner_id = row.pk if isinstance(row, User) else getattr(row, "owner_id", None)
    return Change(f"{OBJECT_TYPE_BY_MODEL.get(kind, kind)}.{action}", row.pk, str(row), owner_id, before, after or {})


def _snapshot_row(row: Model) -> Snapshot:
    return {
        field.name: field.value_from_object(row)
        for field in row._meta.concrete_fields
        if not any(word in field.name for word in SECRET_FIELD_WORDS)
    }


def _snapshot_form(form: forms.Form, values: Mapping[str, object]) -> Snapshot:
    """Return the changed fields, with the names of related rows instead of keys and with passwords hidden."""
    snapshot: dict[str, object] = {}
    for name in form.changed_data:
        if any(word in name for word in SECRET_FIELD_WORDS):
            # Only in the new values: equal old and new values would not show as a change.
            snapshot |= {"password": HIDDEN} if values is form.cleaned_data else {}
        elif name in values:
            snapshot[name] = _format_value(form.fields.get(name), values[name])
    return snapshot


def _format_value(field: forms.Field | None, value: object) -> object:
    if isinstance(field, forms.ModelMultipleChoiceField):
        return sorted(str(row) for row in value) if isinstance(value, Iterable) else []
    if isinstance(field, forms.ModelChoiceField) and not isinstance(value, Model) and value is not None:
        return str(field.to_python(value))
    return value
