"""API tokens: shown once when they are issued, known afterwards by their digest alone, never good again once revoked.

What a token may do is its scope, and never more than its owner may do at that moment.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.db.models import Q
from django.db.models.functions import Now

from jobs import conf, sql
from jobs.errors import InvalidInput, NotPermitted, TokenExpired, TokenRevoked, TokenUnknown
from jobs.models import LADDER, ApiToken, TokenScope
from jobs.services.audit_trail import record
from jobs.services.database import bounded, delete_in_batches
from jobs.services.schedules import database_now
from jobs.storable import UNREADABLE_NAME, is_readable_name

logger = logging.getLogger(__name__)

PREFIX = "pun_"


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def store_token(
    *,
    owner: User,
    name: str,
    secret: str,
    expires_at: datetime | None = None,
    scope: TokenScope = TokenScope.ADMIN,
    pool: str = "",
) -> ApiToken:
    """Makes this secret a valid token of the owner."""
    return ApiToken.objects.create(
        owner=owner, name=name, digest=digest_of(secret), expires_at=expires_at, scope=scope, pool=pool
    )


def issue_token(
    *,
    owner: User,
    name: str,
    scope: TokenScope,
    maker_scope: TokenScope,
    expires_at: datetime | None,
    pool: str = "",
) -> tuple[ApiToken, str]:
    """A new token and its secret, which is kept nowhere. Without `expires_at` it is good until it is revoked."""
    if scope != TokenScope.WORKER and not covers(maker_scope, scope):
        raise NotPermitted("scope", f"A token of scope {maker_scope} makes none of scope {scope}.")
    check_name(name)
    check_holder(owner=owner, scope=scope, pool=pool)
    check_expiry(expires_at)
    secret = new_secret()
    with transaction.atomic(), bounded(statement_seconds=5):
        token = store_token(owner=owner, name=name, secret=secret, expires_at=expires_at, scope=scope, pool=pool)
        record_making(token, by=owner)
    return token, secret


def check_name(name: str) -> None:
    if not is_readable_name(name):
        raise InvalidInput("name", UNREADABLE_NAME)


def check_holder(*, owner: User, scope: TokenScope, pool: str) -> None:
    if scope == TokenScope.WORKER and not owner.is_staff:
        raise NotPermitted("scope", "Only staff may make tokens for workers: they see what others run.")
    if pool and scope != TokenScope.WORKER:
        raise InvalidInput("pool", "Only a worker's token has a pool; leave it out.")


def check_expiry(expires_at: datetime | None) -> None:
    if expires_at is None:
        return
    now = database_now()
    if expires_at <= now:
        raise InvalidInput("expires_at", "This is in the past.")
    if expires_at > now + timedelta(days=conf.MAX_TOKEN_DAYS):
        raise InvalidInput("expires_at", f"A token expires within {conf.MAX_TOKEN_DAYS} days, or never: null.")


def record_making(token: ApiToken, *, by: User | None = None) -> None:
    """`by`: who has only just proved to be, with a password."""
    told = {"scope": token.scope, "pool": token.pool, "expires_at": token.expires_at}
    record("token.created", token, owner_id=token.owner_id, after=told, by=by)


def expiry_after(days: int | None = None) -> datetime | None:
    """When a token that is made now expires, if nobody says otherwise. None: never."""
    days = settings.PUNCTUAL_TOKEN_DAYS if days is None else days
    return database_now() + timedelta(days=days) if days else None


def revoke_token(token_id: UUID) -> bool:
    """At once and for good. False if it was revoked before."""
    with transaction.atomic(), bounded(statement_seconds=5):
        token = ApiToken.objects.select_for_update(no_key=True).filter(id=token_id, revoked_at__isnull=True).first()
        if token is None:
            return False
        ApiToken.objects.filter(id=token_id).update(revoked_at=Now())
        record("token.revoked", token, owner_id=token.owner_id)
    return True


def forget_tokens(*, retention: timedelta) -> int:
    """Deletes those that have been over for so long: every login makes one.

    As long as the audit may name one it stays in the list.
    """
    horizon = database_now() - retention
    over = ApiToken.objects.filter(Q(revoked_at__lt=horizon) | Q(expires_at__lt=horizon)).order_by("id")

    def delete(limit: int) -> int:
        gone, _ = ApiToken.objects.filter(id__in=list(over.values_list("id", flat=True)[:limit])).delete()
        return gone

    return delete_in_batches(delete)


def find_token(secret: str) -> ApiToken:
    """The token, if it is good by the database's clock and its owner may log in; else why it is not.

    A worker's sees what others run: it is good for as long as its owner is staff.

    Who has the secret may know: nobody else gets past the first line.
    """
    rows = ApiToken.objects.select_related("owner").annotate(read_at=Now())
    token = rows.filter(digest=digest_of(secret), owner__is_active=True).first()
    if token is None or (token.scope == TokenScope.WORKER and not token.owner.is_staff):
        raise TokenUnknown
    if token.revoked_at is not None:
        raise TokenRevoked(f"Your token was revoked on {_told(token.revoked_at)}: run punctual login for a new one.")
    if token.expires_at is not None and token.expires_at <= token.read_at:
        raise TokenExpired(f"Your token expired on {_told(token.expires_at)}: run punctual login for a new one.")
    if token.last_used_at is None or (token.read_at - token.last_used_at).total_seconds() >= conf.TOKEN_USE_SECONDS:
        note_use(token.id)
    return token


def in_force(path: str = "") -> Q:
    """What `find_token` asks for, as a condition on rows; `path` leads from them to the token, such as `token__`."""
    unexpired = Q(**{f"{path}expires_at__isnull": True}) | Q(**{f"{path}expires_at__gt": Now()})
    permitted = Q(**{f"{path}owner__is_staff": True}) | ~Q(**{f"{path}scope": TokenScope.WORKER})
    return unexpired & permitted & Q(**{f"{path}revoked_at__isnull": True, f"{path}owner__is_active": True})


def note_use(token_id: UUID) -> None:
    """In a transaction of its own. A database that takes no changes at the moment still answers questions."""
    try:
        sql.execute("note_token_use", {"id": token_id, "seconds": conf.TOKEN_USE_SECONDS}, within=5)
    except DatabaseError as error:
        logger.warning("The use of the token %s was not noted: %s", token_id, error)


def covers(scope: TokenScope, needed: TokenScope) -> bool:
    if scope in LADDER and needed in LADDER:
        return LADDER.index(scope) >= LADDER.index(needed)
    return scope == needed


def digest_of(secret: str) -> str:
    # A plain hash is enough: the secret has 256 random bits, so there is nothing to guess.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _told(at: datetime) -> str:
    return f"{at:%Y-%m-%d at %H:%M} UTC"
