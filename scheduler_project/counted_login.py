"""Logging in with a browser: at the admin, and for everybody at /login; tries are counted as those of the API are.

The session that it makes is good for the API, too, with a CSRF token.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponseRedirect
from django.shortcuts import redirect

from jobs.api.origin import address_of
from jobs.errors import LoginRefused, LoginsUncounted, TooManyLogins
from jobs.services.logins import log_in


class CountedForm(AuthenticationForm):
    def clean(self) -> dict[str, Any]:
        username, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if username is None or not password or self.request is None:
            return self.cleaned_data
        try:
            user = log_in(username=username, password=password, address=address_of(self.request) or "")
        except LoginRefused:
            raise self.get_invalid_login_error() from None
        except (TooManyLogins, LoginsUncounted) as error:
            raise ValidationError(str(error)) from None
        self.confirm_login_allowed(user)
        self.user_cache = user
        return self.cleaned_data


class CountedLoginForm(CountedForm, AdminAuthenticationForm):
    """The admin's, which takes staff only."""


class Login(LoginView):
    """For whoever has an account; who has logged in already is told so, and may log out."""

    authentication_form = CountedForm
    template_name = "jobs/login.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        site = admin.site.each_context(self.request)
        return {**site, **super().get_context_data(**kwargs), "title": "Log in", "app_path": self.request.path}


def home(request: HttpRequest) -> HttpResponseRedirect:
    """The admin is for staff: whoever else has logged in is shown what they may use."""
    is_guest = request.user.is_authenticated and not request.user.is_staff
    return redirect("docs" if is_guest else "admin:index")
