"""The admin's site: what is saved or deleted on any of its pages is in the audit, whoever wrote the page.

A page whose changes are made by services, which record them themselves, says `recorded_by_services`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.contrib.admin.sites import AdminSite
from django.contrib.admin.utils import unquote
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from jobs.services.audit_trail import Change, record, record_all
from jobs.services.audit_values import HIDDEN, Fields
from scheduler_project.counted_login import CountedLoginForm

SECRET = ("password", "digest", "sealed")
NAMES = {"apitoken": "token", "ownerquota": "quota", "periodictask": "system_task"}


class _Audited(admin.ModelAdmin):  # type: ignore[type-arg]  # of whatever the page that it is mixed into is of
    def construct_change_message(
        self, request: HttpRequest, form: forms.Form, formsets: Any, add: bool = False
    ) -> list[dict[str, Any]]:
        """Called by every page that has saved something, in the same transaction."""
        message = super().construct_change_message(request, form, formsets, add)
        if form.changed_data and not getattr(self, "recorded_by_services", False):
            # The form of a password has a user instead.
            saved: Any = getattr(form, "instance", None) or getattr(form, "user", None)
            before = {} if add else {name: form.initial.get(name) for name in form.changed_data}
            told = _change("created" if add else "edited", saved, _shown(form, before), _shown(form, form.cleaned_data))
            record_all([told])
        return message

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The audit's, for those who may read it: Django's own tells neither what was before nor what others did."""
        if request.user.has_perm("jobs.view_auditentry") and self.has_view_or_change_permission(request):
            return redirect(f"{reverse('admin:jobs_auditentry_changelist')}?{urlencode({'q': unquote(object_id)})}")
        return super().history_view(request, object_id, extra_context)

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        if getattr(self, "recorded_by_services", False):
            super().delete_model(request, obj)
            return
        with transaction.atomic():
            record_all([_change("deleted", obj, _row(obj))])
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        if getattr(self, "recorded_by_services", False):
            super().delete_queryset(request, queryset)
            return
        with transaction.atomic():
            record_all([_change("deleted", row, _row(row)) for row in queryset])
            super().delete_queryset(request, queryset)


class AuditedSite(AdminSite):
    login_form = CountedLoginForm

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


def _change(action: str, row: Model, before: Fields, after: Fields | None = None) -> Change:
    kind = str(row._meta.model_name)
    owner_id = row.pk if isinstance(row, User) else getattr(row, "owner_id", None)
    return Change(f"{NAMES.get(kind, kind)}.{action}", row.pk, str(row), owner_id, before, after or {})


def _row(row: Model) -> Fields:
    return {
        field.name: field.value_from_object(row)
        for field in row._meta.concrete_fields
        if not any(word in field.name for word in SECRET)
    }


def _shown(form: forms.Form, values: Mapping[str, object]) -> Fields:
    """Of what was changed: rows by their names, as a form holds them by their keys, and of a password that it was."""
    told: dict[str, object] = {}
    for name in form.changed_data:
        if any(word in name for word in SECRET):
            # Told of what comes after only: before and after would be alike.
            told |= {"password": HIDDEN} if values is form.cleaned_data else {}
        elif name in values:
            told[name] = _named(form.fields.get(name), values[name])
    return told


def _named(field: forms.Field | None, value: object) -> object:
    if isinstance(field, forms.ModelMultipleChoiceField):
        return sorted(str(row) for row in value) if isinstance(value, Iterable) else []
    if isinstance(field, forms.ModelChoiceField) and not isinstance(value, Model) and value is not None:
        return str(field.to_python(value))
    return value
