"""Browser login, for staff in the admin and for all users at /login, rate-limited together with API logins.

The session also authenticates API requests, with a CSRF token.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponseRedirect
from django.shortcuts import redirect

from jobs.access.login import log_in
from jobs.access.login_audit import record_login, record_refusal
from jobs.api.framework.request_actor import resolve_client_address
from jobs.domain.errors import LoginCounterUnavailable, LoginRefused, TooManyLoginAttempts
from jobs.models.visibility import is_operator


class RateLimitedLoginForm(AuthenticationForm):
    def clean(self) -> dict[str, Any]:
        username, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if username is None or not password or self.request is None:
            return self.cleaned_data
        address = resolve_client_address(self.request) or ""
        try:
            user = log_in(username=username, password=password, address=address, confirm=self._confirm)
        except LoginRefused:
            raise self.get_invalid_login_error() from None
        except (TooManyLoginAttempts, LoginCounterUnavailable) as error:
            raise ValidationError(str(error)) from None
        record_login(user)
        self.user_cache = user
        return self.cleaned_data

    def _confirm(self, user: User) -> None:
        """Record a correct password of a user who may not log in, and do not reset the failure count for it."""
        try:
            self.confirm_login_allowed(user)
        except ValidationError:
            record_refusal(user, because="not staff")
            raise


class RateLimitedAdminLoginForm(RateLimitedLoginForm, AdminAuthenticationForm):
    """The admin's form, which accepts staff only."""


class Login(LoginView):
    """Login page of all users; shows the account and a logout button to users who have logged in."""

    authentication_form = RateLimitedLoginForm
    template_name = "jobs/login.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        site = admin.site.each_context(self.request)
        return {**site, **super().get_context_data(**kwargs), "title": "Log in", "app_path": self.request.path}


def redirect_home(request: HttpRequest) -> HttpResponseRedirect:
    """Redirect to the admin, or to the API documentation for users who are not staff."""
    is_plain_user = request.user.is_authenticated and not is_operator(request.user)
    return redirect("docs" if is_plain_user else "admin:index")
