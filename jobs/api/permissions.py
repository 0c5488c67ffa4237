"""What a token is good for: a worker's token for being that worker and nothing else, any other for all but that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request

from jobs.models import ApiToken, TokenScope

if TYPE_CHECKING:
    # Loaded by DRF before its own views.
    from rest_framework.views import APIView


def is_worker_token(request: Request) -> bool:
    return isinstance(request.auth, ApiToken) and request.auth.scope == TokenScope.WORKER


class OrdinaryUse(IsAuthenticated):
    """The default of every view: what is made for workers must say so itself."""

    message = "This token is good for a worker only; use an ordinary API token."

    def has_permission(self, request: Request, view: APIView) -> bool:
        return super().has_permission(request, view) and not is_worker_token(request)


class WorkerUse(BasePermission):
    message = "Only a worker may do this; use a token of scope worker (manage.py create_worker_token, or the admin)."

    def has_permission(self, request: Request, view: APIView) -> bool:
        return is_worker_token(request)


class WorkerOrOrdinaryUse(IsAuthenticated):
    """For the few things that a worker does to itself and others to any worker; the view tells them apart."""
