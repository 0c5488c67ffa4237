"""The admin's site: what is saved or deleted on any of its pages is in the audit, whoever wrote the page.

A page whose changes are made by services, which record them themselves, says `recorded_by_services`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.sites import AdminSite
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse

from jobs.services.audit_trail import Change, record, record_all
from jobs.services.audit_values import HIDDEN

NAMES = {"apitoken": "token", "ownerquota": "quota", "periodictask": "system_task"}


class _Audited(admin.ModelAdmin):  # type: ignore[type-arg]  # of whatever the page that it is mixed into is of
    def construct_change_message(
        self, request: HttpRequest, form: forms.Form, formsets: Any, add: bool = False
    ) -> list[dict[str, Any]]:
        """Called by every page that has saved something, in the same transaction."""
        message = super().construct_change_message(request, form, formsets, add)
        if not getattr(self, "recorded_by_services", False):
            saved = getattr(form, "instance", None) or getattr(form, "user")  # noqa: B009 - of a password's form
            before = {} if add else {name: _shown(form, name, form.initial.get(name)) for name in form.changed_data}
            after = {name: _shown(form, name, form.cleaned_data.get(name)) for name in form.changed_data}
            # Not alike, as it was not there before: an entry is what a password leaves, and nothing of it.
            passwords = {name for name in after if "password" in name}
            told = {name: value for name, value in after.items() if name not in passwords}
            if passwords:
                told["password"] = HIDDEN
            before = {name: value for name, value in before.items() if name not in passwords}
            action = "created" if add else "edited"
            record_all([_change(action, saved, before, told)])
        return message

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        if getattr(self, "recorded_by_services", False):
            super().delete_model(request, obj)
            return
        with transaction.atomic():
            record_all([_change("deleted", obj, {}, {})])
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        if getattr(self, "recorded_by_services", False):
            super().delete_queryset(request, queryset)
            return
        with transaction.atomic():
            record_all([_change("deleted", row, {}, {}) for row in queryset])
            super().delete_queryset(request, queryset)


class AuditedSite(AdminSite):
    def register(
        self,
        model_or_iterable: type[Model] | Iterable[type[Model]],
        admin_class: type[admin.ModelAdmin[Any]] | None = None,
        **options: Any,
    ) -> None:
        page = admin_class or admin.ModelAdmin
        audited = type(page.__name__, (_Audited, page), {"__module__": page.__module__, "__doc__": page.__doc__})
        super().register(model_or_iterable, audited, **options)

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """One's own, on a page that is no model's."""
        with transaction.atomic():
            user = request.user
            before = getattr(user, "password", None)
            response = super().password_change(request, extra_context)
            if isinstance(user, User) and user.password != before:
                record("user.edited", user, owner_id=user.pk, after={"password": HIDDEN})
        return response


def _change(action: str, row: Model, before: dict[str, object], after: dict[str, object]) -> Change:
    kind = str(row._meta.model_name)
    owner_id = row.pk if isinstance(row, User) else getattr(row, "owner_id", None)
    return Change(f"{NAMES.get(kind, kind)}.{action}", row.pk, str(row), owner_id, before, after)


def _shown(form: forms.Form, name: str, value: object) -> object:
    """As a reader knows it: what a form holds as the key of a row by that row's name."""
    field = form.fields.get(name)
    if isinstance(field, forms.ModelMultipleChoiceField):
        return sorted(str(row) for row in value) if isinstance(value, Iterable) else []
    if isinstance(field, forms.ModelChoiceField) and not isinstance(value, Model) and value is not None:
        return str(field.to_python(value))
    return value
