"""Password marks: a token is valid only while its owner has the password that it was issued under.

The mark is compared at every use, so changing a password in any way, including `manage.py changepassword` and plain
SQL, invalidates old tokens. Worker tokens are exempt: they belong to a machine.
"""

from __future__ import annotations

import hashlib

from django.contrib.auth.models import User

from jobs.audit.log import record_change
from jobs.models import SCOPE_LADDER, ApiToken, TokenScope

INVALIDATED = "-"  # matches no password


def compute_mark(password: str) -> str:
    """Hash Django's password hash, without a key, so that a new SECRET_KEY invalidates no token."""
    return hashlib.sha256(password.encode()).hexdigest()


def has_current_mark(token: ApiToken) -> bool:
    return token.scope == TokenScope.WORKER or token.password_mark == compute_mark(token.owner.password)


def invalidate_tokens(user: User, *, because: str) -> int:
    """Invalidate all tokens except worker tokens, in the transaction of the change that is the reason."""
    tokens = ApiToken.objects.filter(owner=user, scope__in=SCOPE_LADDER, revoked_at=None)
    invalidated = tokens.exclude(password_mark=INVALIDATED).update(password_mark=INVALIDATED)
    if invalidated:
        record_change("user.tokens_ended", user, owner_id=user.pk, after={"tokens": invalidated, "because": because})
    return invalidated


def carry_marks(user: User, *, former: str) -> None:
    """Keep the tokens of a password that was only rehashed, as Django does at a login after an upgrade."""
    ApiToken.objects.filter(owner=user, password_mark=compute_mark(former)).update(
        password_mark=compute_mark(user.password)
    )
