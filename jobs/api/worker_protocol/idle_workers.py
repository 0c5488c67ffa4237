"""Authentication of claims: a worker that waited idle a moment ago waits again without a read of its token.

The read that found it idle has just checked the token, and every claim checks it again in Postgres.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from rest_framework.request import Request

from jobs.access.tokens import compute_digest
from jobs.api.framework.authentication import BearerTokenAuthentication
from jobs.fleet.remote_claims import find_idle_claim
from jobs.models import ApiToken


class IdleWorkerAuthentication(BearerTokenAuthentication):
    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        context: dict[str, Any] = request.parser_context
        idle = find_idle_claim(context["kwargs"]["worker_id"], read_token_digest(request))
        return super().authenticate(request) if idle is None else (idle.token.owner, idle.token)


def read_token_digest(request: Request) -> str:
    """Return the digest of the request's bearer token, whether or not it is a valid one."""
    _, _, secret = request.headers.get("Authorization", "").partition(" ")
    return compute_digest(secret.strip())
