"""API tokens: shown once when they are issued, known afterwards by their digest alone."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Q
from django.db.models.functions import Now

from jobs.models import ApiToken, TokenScope

PREFIX = "pun_"


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def store_token(
    *,
    owner: User,
    name: str,
    secret: str,
    expires_at: datetime | None = None,
    scope: TokenScope = TokenScope.ALL,
    pool: str = "",
) -> ApiToken:
    """Makes this secret a valid token of the owner."""
    return ApiToken.objects.create(
        owner=owner, name=name, digest=digest_of(secret), expires_at=expires_at, scope=scope, pool=pool
    )


def find_token(secret: str) -> ApiToken | None:
    """The token, if it is known, not expired by the database's clock, and its owner may log in."""
    return (
        ApiToken.objects.select_related("owner")
        .filter(Q(expires_at__isnull=True) | Q(expires_at__gt=Now()), digest=digest_of(secret), owner__is_active=True)
        .first()
    )


def digest_of(secret: str) -> str:
    # A plain hash is enough: the secret has 256 random bits, so there is nothing to guess.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
