"""What a token is good for: the scope that every address asks for, in one table. What is not in it is refused.

To look needs `read` wherever the table says nothing else; to change anything needs a line of its own here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from jobs.errors import ScopeTooSmall
from jobs.models import ApiToken, TokenScope
from jobs.services.tokens import covers

if TYPE_CHECKING:
    # Loaded by DRF before its own views.
    from rest_framework.views import APIView

Scopes = tuple[TokenScope, ...]  # any of them will do

READ = (TokenScope.READ,)
SUBMIT = (TokenScope.SUBMIT,)
OPERATE = (TokenScope.OPERATE,)
ADMIN = (TokenScope.ADMIN,)
WORKER = (TokenScope.WORKER,)
OPEN: Scopes = ()  # to everybody

PREFIX = "api/v1/"
NEEDED: Mapping[str, Mapping[str, Scopes]] = {
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
    "tokens": {"POST": ADMIN},
    "tokens/self": {"GET": (*READ, *WORKER), "DELETE": (*READ, *WORKER)},
    "tokens/<uuid:token_id>": {"DELETE": ADMIN},
    "login": {"POST": OPEN},
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
    # The view tells a worker, which may drain itself, from staff.
    "workers/<uuid:worker_id>/drain": {"POST": (*OPERATE, *WORKER)},
    "workers/<uuid:worker_id>/leave": {"POST": WORKER},
}


def is_worker_token(request: Request) -> bool:
    return isinstance(request.auth, ApiToken) and request.auth.scope == TokenScope.WORKER


def scope_of(request: Request) -> TokenScope:
    """A person who has logged in with a browser may do whatever they may do."""
    return TokenScope(request.auth.scope) if isinstance(request.auth, ApiToken) else TokenScope.ADMIN


def scopes_needed(route: str, method: str) -> Scopes | None:
    """None: nobody has said, so nobody may."""
    declared = NEEDED.get(route.removeprefix(PREFIX), {})
    if method in SAFE_METHODS:
        return declared.get("GET", READ)
    return declared.get(method)


class WithinScope(BasePermission):
    """The only permission that most views have; what belongs to others is a matter of what is found."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        method = request.method or ""
        match = request.resolver_match
        needed = scopes_needed(match.route, method) if match else None
        if needed == OPEN:
            return True
        exists = hasattr(view, method.lower())
        if not request.user.is_authenticated:
            # Where nobody is asked who they are, nobody can be refused for it.
            return not exists and not view.authentication_classes
        if not exists:
            # It will be refused as a method that does not exist here, whoever asks.
            return True
        if needed is None:
            raise ScopeTooSmall("Nobody may do this: it is not said which scope it needs.")
        scope = scope_of(request)
        if not any(covers(scope, each) for each in needed):
            raise ScopeTooSmall(f"This needs a token of scope {' or '.join(needed)}; this one has {scope}.")
        return True
