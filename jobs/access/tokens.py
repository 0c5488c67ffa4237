"""API tokens: issue, find, revoke and prune them.

A token's secret is shown once; only its digest is stored. A token permits what its scope and its owner's current
permissions both allow, and a revoked token never works again.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection
from datetime import datetime, timedelta
from functools import partial
from secrets import token_urlsafe
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from jobs.access.password_marks import compute_mark, has_current_mark
from jobs.audit.log import record_change
from jobs.db import sql
from jobs.db.clock import database_now
from jobs.db.transactions import delete_in_batches, with_timeouts
from jobs.db.ttl_cache import TTLCache
from jobs.domain import limits
from jobs.domain.errors import InvalidInput, NotPermitted, TokenExpired, TokenRevoked, TokenUnknown
from jobs.domain.text_validation import UNREADABLE_NAME_MESSAGE, is_readable_name
from jobs.models import ALL_SECRETS, SCOPE_LADDER, ApiToken, TokenScope
from jobs.models.secret import SECRET_NAME
from jobs.models.visibility import is_operator

logger = logging.getLogger(__name__)

PREFIX = "pun_"
CACHE_TTL_SECONDS = 1.0

# The columns of find_token after the time; other fields are deferred.
_TOKEN_FIELDS = (
    *("id", "owner_id", "name", "digest", "scope", "pool", "max_workers", "secrets", "password_mark"),
    *("created_at", "expires_at", "revoked_at", "last_used_at"),
)
_OWNER_FIELDS = (
    *("id", "password", "last_login", "is_superuser", "username", "first_name", "last_name", "email", "is_staff"),
    *("is_active", "date_joined"),
)

_cache: TTLCache[str, ApiToken] = TTLCache()


def generate_secret() -> str:
    return PREFIX + token_urlsafe(32)


def store_token(
    *,
    owner: User,
    name: str,
    secret: str,
    expires_at: datetime | None = None,
    scope: TokenScope = TokenScope.ADMIN,
    pool: str = "",
    max_workers: int = 1,
    secrets: Collection[str] = (ALL_SECRETS,),
) -> ApiToken:
    """Store a valid token with this secret."""
    return ApiToken.objects.create(
        owner=owner,
        name=name,
        digest=compute_digest(secret),
        password_mark=compute_mark(owner.password),
        expires_at=expires_at,
        scope=scope,
        pool=pool,
        max_workers=max_workers,
        secrets=list(secrets),
    )


def issue_token(
    *,
    owner: User,
    name: str,
    scope: TokenScope,
    maker_scope: TokenScope,
    expires_at: datetime | None,
    pool: str = "",
    any_pool: bool = False,
    max_workers: int | None = None,
    secrets: Collection[str] | None = None,
    maker_secrets: Collection[str] = (ALL_SECRETS,),
    maker: ApiToken | None = None,
) -> tuple[ApiToken, str]:
    """Create a token and return it with its secret, which is not stored. Without `expires_at` it never expires.

    `secrets`: those it may give to jobs; None: the scope's default. `maker`: the token that requests it.
    """
    if scope != TokenScope.WORKER and not scope_covers(maker_scope, scope):
        raise NotPermitted("scope", f"A token of scope {maker_scope} cannot create one of scope {scope}.")
    check_name(name)
    check_owner(owner=owner, scope=scope)
    check_worker_options(scope=scope, pool=pool, any_pool=any_pool, max_workers=max_workers)
    check_expiry(expires_at)
    secrets = default_secrets(scope) if secrets is None else secrets
    check_secrets(scope=scope, secrets=secrets)
    if ALL_SECRETS not in maker_secrets and scope == TokenScope.WORKER:
        raise NotPermitted("scope", "Workers get all secrets of the jobs they run; this token may give only some.")
    if ALL_SECRETS not in maker_secrets and not set(secrets) <= set(maker_secrets):
        raise NotPermitted("secrets", "A token cannot create one that may give more secrets than itself; name fewer.")
    secret = generate_secret()
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        _check_still_valid(_lock_owner(owner), maker)
        token = store_token(
            owner=owner,
            name=name,
            secret=secret,
            expires_at=expires_at,
            scope=scope,
            pool=pool,
            max_workers=max_workers or 1,
            secrets=secrets,
        )
        record_creation(token, by=owner)
    return token, secret


def check_name(name: str) -> None:
    if not is_readable_name(name):
        raise InvalidInput("name", UNREADABLE_NAME_MESSAGE)


def check_owner(*, owner: User, scope: TokenScope) -> None:
    if scope == TokenScope.WORKER and not is_operator(owner):
        raise NotPermitted("scope", "Only staff may create worker tokens: workers see the programs of all users.")


def check_worker_options(*, scope: TokenScope, pool: str, any_pool: bool, max_workers: int | None) -> None:
    """Require a pool or an explicit `any_pool`: a worker of any pool gets the runs and secrets of all users."""
    if scope != TokenScope.WORKER:
        given = {"pool": pool, "any_pool": any_pool, "max_workers": max_workers}
        for name in (name for name, value in given.items() if value):
            raise InvalidInput(name, f"Only worker tokens have {name}; leave it out.")
        return
    if pool and any_pool:
        raise InvalidInput("any_pool", "Give either pool or any_pool, not both.")
    if not pool and not any_pool:
        raise InvalidInput(
            "pool",
            "Name the pool that the worker may join, or set any_pool (--any-pool): a worker of any pool can get the"
            " runs and secrets of all users.",
        )
    if max_workers is not None and not 1 <= max_workers <= limits.MAX_WORKERS_PER_TOKEN:
        raise InvalidInput("max_workers", f"A token is for 1 to {limits.MAX_WORKERS_PER_TOKEN} workers.")


def default_secrets(scope: TokenScope) -> list[str]:
    """Return the secrets that a token may give to jobs by default: none if it may only submit."""
    return [ALL_SECRETS] if scope_covers(scope, TokenScope.OPERATE) else []


def check_secrets(*, scope: TokenScope, secrets: Collection[str]) -> None:
    if not secrets:
        return
    if not scope_covers(scope, TokenScope.SUBMIT):
        raise InvalidInput("secrets", f"A token of scope {scope} cannot submit jobs; leave this out.")
    if list(secrets) == [ALL_SECRETS]:
        return
    if len(secrets) > limits.MAX_SECRETS_PER_TOKEN or len(set(secrets)) < len(secrets):
        raise InvalidInput("secrets", f"Name at most {limits.MAX_SECRETS_PER_TOKEN} secrets, each once.")
    if not all(re.fullmatch(SECRET_NAME, name) for name in secrets):
        raise InvalidInput("secrets", f"Give names of secrets, or {ALL_SECRETS} alone for all of them.")


def check_expiry(expires_at: datetime | None) -> None:
    if expires_at is None:
        return
    now = database_now()
    if expires_at <= now:
        raise InvalidInput("expires_at", "This is in the past.")
    if expires_at > now + timedelta(days=limits.MAX_TOKEN_DAYS):
        raise InvalidInput("expires_at", f"A token expires within {limits.MAX_TOKEN_DAYS} days, or never: null.")


def record_creation(token: ApiToken, *, by: User | None = None) -> None:
    """Write the audit entry. `by`: the user who logged in with a password in this request."""
    snapshot: dict[str, object] = {"scope": token.scope, "pool": token.pool, "expires_at": token.expires_at}
    if token.scope == TokenScope.WORKER:
        snapshot |= {"any_pool": not token.pool, "max_workers": token.max_workers}
    else:
        snapshot |= {"secrets": token.secrets}
    record_change("token.created", token, owner_id=token.owner_id, after=snapshot, by=by)


def compute_expiry(scope: TokenScope, days: int | None = None) -> datetime | None:
    """Return when a new token expires; without `days`, by the setting of its scope. None: never."""
    if days is None:
        days = settings.PUNCTUAL_WORKER_TOKEN_DAYS if scope == TokenScope.WORKER else settings.PUNCTUAL_TOKEN_DAYS
    return database_now() + timedelta(days=days) if days else None


def _lock_owner(owner: User) -> User | None:
    """Serialise issuing and revoking an owner's tokens: a revoked token leaves no token that it was creating."""
    return User.objects.select_for_update(no_key=True).filter(pk=owner.pk).first()


def _check_still_valid(owner: User | None, maker: ApiToken | None) -> None:
    """Check owner and maker again under the owner's lock."""
    if owner is None or not owner.is_active:
        raise TokenRevoked("The account was deactivated.")
    if maker is None:
        return
    current = ApiToken.objects.select_related("owner").filter(pk=maker.pk, revoked_at__isnull=True).first()
    if current is None or not has_current_mark(current):
        raise TokenRevoked


def revoke_token(token_id: UUID) -> bool:
    """Revoke a token. False: it was revoked before."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        token = ApiToken.objects.filter(id=token_id, revoked_at__isnull=True).select_related("owner").first()
        if token is None:
            return False
        _lock_owner(token.owner)
        if not ApiToken.objects.select_for_update(no_key=True).filter(id=token_id, revoked_at__isnull=True).exists():
            return False
        ApiToken.objects.filter(id=token_id).update(revoked_at=Now())
        record_change("token.revoked", token, owner_id=token.owner_id)
    return True


def revoke_tokens(owner: User, *, workers: bool) -> int:
    """Revoke all tokens of a user, including worker tokens only if `workers`."""
    tokens = ApiToken.objects.filter(owner=owner, revoked_at__isnull=True)
    with transaction.atomic(), with_timeouts(statement_seconds=30):
        _lock_owner(owner)
        revoked = (tokens if workers else tokens.filter(scope__in=SCOPE_LADDER)).update(revoked_at=Now())
        record_change("user.tokens_revoked", owner, owner_id=owner.pk, after={"tokens": revoked, "workers": workers})
    return revoked


def prune_tokens(*, retention: timedelta) -> int:
    """Delete tokens that were revoked or expired before the retention of the audit, which may name them.

    Every login creates a token.
    """
    horizon = database_now() - retention
    ended = ApiToken.objects.filter(Q(revoked_at__lt=horizon) | Q(expires_at__lt=horizon)).order_by("id")

    def delete(limit: int) -> int:
        deleted, _ = ApiToken.objects.filter(id__in=list(ended.values_list("id", flat=True)[:limit])).delete()
        return deleted

    return delete_in_batches(delete)


def find_token(secret: str) -> ApiToken:
    """Return the token if it is valid by the database's clock and its owner is active; else raise the reason.

    A worker token is valid only while its owner is staff. The reason reveals nothing: only the secret's holder gets it.
    """
    found = sql.fetch("find_token", {"digest": compute_digest(secret)}, _build_token)
    if not found:
        raise TokenUnknown
    token, read_at = found[0]
    if token.scope == TokenScope.WORKER and not is_operator(token.owner):
        raise TokenUnknown
    if token.revoked_at is not None:
        raise TokenRevoked(
            f"Your token was revoked on {_format_time(token.revoked_at)}: run punctual login for a new one."
        )
    if token.expires_at is not None and token.expires_at <= read_at:
        raise TokenExpired(f"Your token expired on {_format_time(token.expires_at)}: run punctual login for a new one.")
    if not has_current_mark(token):
        raise TokenRevoked(
            f"Your token ended when the password of {token.owner.username} was changed or the account was deactivated:"
            " run punctual login for a new one."
        )
    if (
        token.last_used_at is None
        or (read_at - token.last_used_at).total_seconds() >= limits.TOKEN_USE_RESOLUTION_SECONDS
    ):
        record_use(token.id)
    return token


def _build_token(read_at: datetime, *values: object) -> tuple[ApiToken, datetime]:
    token = ApiToken.from_db(connection.alias, _TOKEN_FIELDS, values[: len(_TOKEN_FIELDS)])
    token.owner = User.from_db(connection.alias, _OWNER_FIELDS, values[len(_TOKEN_FIELDS) :])
    return token, read_at


def find_cached_token(secret: str) -> ApiToken:
    """Like `find_token`, cached per process for a second, for read-only requests: clients that poll look up less.

    An invalid token can read for at most a second longer, and change nothing. The cache holds digests, not secrets.
    """
    if connection.in_atomic_block:
        return find_token(secret)
    return _cache.get(compute_digest(secret), partial(find_token, secret), seconds=CACHE_TTL_SECONDS)


def is_in_force(token: ApiToken, now: datetime) -> bool:
    """Whether `find_token` would return the token."""
    permitted = token.scope != TokenScope.WORKER or is_operator(token.owner)
    unexpired = token.expires_at is None or token.expires_at > now
    return permitted and unexpired and token.owner.is_active and token.revoked_at is None and has_current_mark(token)


def in_force_filter(path: str = "") -> Q:
    """Return `is_in_force` of worker tokens as a query filter; `path` leads to the token, such as `token__`."""
    unexpired = Q(**{f"{path}expires_at__isnull": True}) | Q(**{f"{path}expires_at__gt": Now()})
    permitted = Q(**{f"{path}owner__is_staff": True}) | ~Q(**{f"{path}scope": TokenScope.WORKER})
    return unexpired & permitted & Q(**{f"{path}revoked_at__isnull": True, f"{path}owner__is_active": True})


def record_use(token_id: UUID) -> None:
    """Record the use in a transaction of its own. A read-only database must not fail the request."""
    try:
        sql.execute(
            "record_token_use", {"id": token_id, "seconds": limits.TOKEN_USE_RESOLUTION_SECONDS}, timeout_seconds=5
        )
    except DatabaseError as error:
        logger.warning("Could not record the use of token %s: %s", token_id, error)


def scope_covers(scope: TokenScope, needed: TokenScope) -> bool:
    if scope in SCOPE_LADDER and needed in SCOPE_LADDER:
        return SCOPE_LADDER.index(scope) >= SCOPE_LADDER.index(needed)
    return scope == needed


def compute_digest(secret: str) -> str:
    # A plain hash is enough: the secret has 256 random bits, so there is nothing to guess.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _format_time(at: datetime) -> str:
    return f"{at:%Y-%m-%d at %H:%M} UTC"
