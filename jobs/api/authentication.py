"""Who is asking: the bearer of an API token."""

from __future__ import annotations

from django.contrib.auth.models import User
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from jobs.models import ApiToken
from jobs.services.token_cache import find_recent_token
from jobs.services.tokens import find_token

SCHEME = "bearer"


class BearerTokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != SCHEME:
            return None
        # Whoever polls costs no lookup each time; whatever changes something has its token looked up.
        find = find_recent_token if request.method in SAFE_METHODS else find_token
        token = find(secret.strip())
        return token.owner, token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
