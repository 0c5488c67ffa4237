"""/account/password: users change their own password in the browser; the admin links here, too.

The new password, the end of the user's API tokens and other sessions, and the audit entries commit together.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.contrib.auth.views import PasswordChangeView
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse_lazy

from jobs.access.login import log_in
from jobs.access.password_marks import invalidate_tokens
from jobs.access.tokens import in_force_filter
from jobs.api.framework.request_actor import resolve_client_address
from jobs.audit.log import record_change
from jobs.audit.snapshots import HIDDEN
from jobs.domain.errors import LoginCounterUnavailable, LoginRefused, TooManyLoginAttempts
from jobs.models import ApiToken, TokenScope

CHANGED_MESSAGE = "Your password was changed, and your API tokens were revoked. Create new tokens where you need them."


class RateLimitedPasswordChangeForm(PasswordChangeForm):
    """Counts wrong old passwords as failed logins, against guessing in an unattended browser."""

    def __init__(self, user: User, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(user, *args, **kwargs)
        self._request = request

    def clean_old_password(self) -> str:
        password: str = self.cleaned_data["old_password"]
        try:
            log_in(
                username=self.user.get_username(),
                password=password,
                address=resolve_client_address(self._request) or "",
            )
        except LoginRefused:
            raise ValidationError(self.error_messages["password_incorrect"], code="password_incorrect") from None
        except (TooManyLoginAttempts, LoginCounterUnavailable) as error:
            raise ValidationError(str(error)) from None
        return password


class PasswordChange(PasswordChangeView):
    form_class = RateLimitedPasswordChangeForm
    template_name = "jobs/password.html"
    success_url = reverse_lazy("login")
    title = "Change your password"

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "request": self.request}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**admin.site.each_context(self.request), **super().get_context_data(**kwargs)}

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        with transaction.atomic():
            response = super().form_valid(form)
            record_change("user.edited", form.user, owner_id=form.user.pk, after={"password": HIDDEN})
            invalidate_tokens(form.user, because="password changed")
        messages.success(self.request, CHANGED_MESSAGE + _describe_worker_tokens(form.user))
        return response


def _describe_worker_tokens(user: User) -> str:
    """Mention worker tokens, which survive a password change and may have been created by an intruder."""
    count = ApiToken.objects.filter(in_force_filter(), owner=user, scope=TokenScope.WORKER).count()
    if not count:
        return ""
    tokens = "1 worker token of yours stays" if count == 1 else f"{count} worker tokens of yours stay"
    return f" {tokens} valid: revoke any that you do not recognise."
