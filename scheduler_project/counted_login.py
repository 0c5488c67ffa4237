"""The admin's form to log in: tries are counted as those of the API are, by user and by address, and together."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.forms import AdminAuthenticationForm
from django.core.exceptions import ValidationError

from jobs.api.origin import address_of
from jobs.errors import LoginRefused, LoginsUncounted, TooManyLogins
from jobs.services.logins import log_in


class CountedLoginForm(AdminAuthenticationForm):
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
