"""Authentication by bearer token or by a browser session."""

from __future__ import annotations

from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from jobs.access.tokens import find_cached_token, find_token
from jobs.models import ApiToken

SCHEME = "bearer"


class BearerTokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != SCHEME:
            return None
        # Polling clients use the cache; a request that changes something always reads the token's row.
        find = find_cached_token if request.method in SAFE_METHODS else find_token
        token = find(secret.strip())
        return token.owner, token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def check_session(request: Request) -> None:
    """Raise NotAuthenticated if the session of a long request has ended since it began.

    A session ends with a logout, a password change or the deactivation of its user. Requests with a token pass.
    """
    if not isinstance(request.successful_authenticator, SessionAuthentication):
        return
    session = request._request.session
    reloaded = HttpRequest()
    reloaded.session = type(session)(session.session_key)
    if get_user(reloaded).pk != request.user.pk:
        raise NotAuthenticated
