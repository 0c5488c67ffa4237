"""Users, as Django's own page has them: a password and the entry of its change are committed together."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse

admin.site.unregister(User)


@admin.register(User)
class PeopleAdmin(UserAdmin):  # type: ignore[type-arg]  # it is not generic at run time
    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        with transaction.atomic():
            return super().user_change_password(request, id, form_url)
