"""Required token scope of every route and method, in one table.

Reading needs `read` unless the table says otherwise. Every method that changes something needs an entry; without one
it is forbidden.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from jobs.access.tokens import scope_covers
from jobs.domain.errors import InsufficientScope
from jobs.models import ALL_SECRETS, ApiToken, TokenScope

if TYPE_CHECKING:
    # DRF loads this module before its own views.
    from rest_framework.views import APIView

Scopes = tuple[TokenScope, ...]  # any one suffices

READ = (TokenScope.READ,)
SUBMIT = (TokenScope.SUBMIT,)
OPERATE = (TokenScope.OPERATE,)
ADMIN = (TokenScope.ADMIN,)
WORKER = (TokenScope.WORKER,)
PUBLIC: Scopes = ()

API_PREFIX = "api/v1/"
REQUIRED_SCOPES: Mapping[str, Mapping[str, Scopes]] = {
    "jobs": {"POST": SUBMIT},
    "jobs/bulk": {"POST": SUBMIT},
    "schedules/preview": {"POST": READ},
    "jobs/<uuid:job_id>": {"PATCH": OPERATE, "DELETE": OPERATE},
    "jobs/<uuid:job_id>/cancel": {"PUT": OPERATE},
    "jobs/<uuid:job_id>/pause": {"POST": OPERATE},
    "jobs/<uuid:job_id>/resume": {"POST": OPERATE},
    "jobs/<uuid:job_id>/execute": {"POST": SUBMIT},
    "jobs/<uuid:job_id>/backfill": {"POST": OPERATE},
    "backfills/<uuid:backfill_id>/cancel": {"PUT": OPERATE},
    "calendars": {"POST": OPERATE},
    "calendars/<uuid:calendar_id>": {"PATCH": OPERATE, "DELETE": OPERATE},
    "executions/<uuid:execution_id>/cancel": {"PUT": OPERATE},
    "executions/<uuid:execution_id>/retry": {"POST": OPERATE},
    "executions/<uuid:execution_id>/logs": {"POST": WORKER},
    "executions/<uuid:execution_id>/outputs": {"POST": WORKER, "DELETE": OPERATE},
    "executions/<uuid:execution_id>/start": {"POST": WORKER},
    "executions/<uuid:execution_id>/complete": {"POST": WORKER},
    "dead-letters/<uuid:execution_id>/redrive": {"POST": OPERATE},
    "dead-letters/<uuid:execution_id>/dismiss": {"POST": OPERATE},
    "artifacts": {"POST": SUBMIT},
    "artifacts/<uuid:artifact_id>": {"DELETE": OPERATE},
    "artifacts/<uuid:artifact_id>/complete": {"POST": SUBMIT},
    "secrets": {"POST": ADMIN},
    "secrets/<uuid:secret_id>": {"PUT": ADMIN, "DELETE": ADMIN},
    "teams": {"POST": ADMIN},
    "teams/<uuid:team_id>": {"PATCH": ADMIN, "DELETE": ADMIN},
    "tokens": {"POST": ADMIN, "DELETE": ADMIN},
    "tokens/self": {"GET": (*READ, *WORKER), "DELETE": (*READ, *WORKER)},
    "tokens/<uuid:token_id>": {"DELETE": ADMIN},
    "login": {"POST": PUBLIC},
    "webhooks": {"POST": ADMIN},
    "webhooks/<uuid:webhook_id>": {"PATCH": ADMIN, "DELETE": ADMIN},
    "webhooks/<uuid:webhook_id>/rotate": {"POST": ADMIN},
    "webhooks/<uuid:webhook_id>/ping": {"POST": OPERATE},
    "webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/redeliver": {"POST": OPERATE},
    "queues": {"POST": ADMIN},
    "queues/<uuid:queue_id>": {"PATCH": OPERATE, "DELETE": ADMIN},
    "workers/terms": {"GET": WORKER},
    "workers/register": {"POST": WORKER},
    "workers/<uuid:worker_id>/heartbeat": {"POST": WORKER},
    "workers/<uuid:worker_id>/claim": {"POST": WORKER},
    # The view restricts this to staff, and to a worker that drains itself.
    "workers/<uuid:worker_id>/drain": {"POST": (*OPERATE, *WORKER)},
    "workers/<uuid:worker_id>/leave": {"POST": WORKER},
}


def is_worker_token(request: Request) -> bool:
    return isinstance(request.auth, ApiToken) and request.auth.scope == TokenScope.WORKER


def get_request_scope(request: Request) -> TokenScope:
    """Return the scope of the request's token; a browser session has every scope."""
    return TokenScope(request.auth.scope) if isinstance(request.auth, ApiToken) else TokenScope.ADMIN


def get_grantable_secrets(request: Request, *, owner_id: int) -> Collection[str]:
    """Return the names of the secrets that the request may grant to jobs of this owner.

    The names in a token's list are secrets of the token's owner.
    """
    token = request.auth
    if not isinstance(token, ApiToken) or ALL_SECRETS in token.secrets:
        return (ALL_SECRETS,)
    return token.secrets if token.owner_id == owner_id else ()


def find_required_scopes(route: str, method: str) -> Scopes | None:
    """Return the scopes that permit a method on a route; None if the table has no entry."""
    declared = REQUIRED_SCOPES.get(route.removeprefix(API_PREFIX), {})
    if method in SAFE_METHODS:
        return declared.get("GET", READ)
    return declared.get(method)


class RequiredScopePermission(BasePermission):
    """Check the token's scope. Ownership is enforced by the querysets, which leave out other users' rows."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        method = request.method or ""
        match = request.resolver_match
        needed = find_required_scopes(match.route, method) if match else None
        if needed == PUBLIC:
            return True
        exists = hasattr(view, method.lower())
        if not request.user.is_authenticated:
            # Views without authentication answer 405 to an unknown method, not 401.
            return not exists and not view.authentication_classes
        if not exists:
            # Falls through to 405.
            return True
        if needed is None:
            raise InsufficientScope("Forbidden: the server defines no scope for this operation.")
        scope = get_request_scope(request)
        if not any(scope_covers(scope, each) for each in needed):
            raise InsufficientScope(f"This needs a token of scope {' or '.join(needed)}; this one has {scope}.")
        return True
