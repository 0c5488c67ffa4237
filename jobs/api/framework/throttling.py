"""Rate limiting of requests, counted after authentication and before any work, with headers in every response.

Requests of workers are not counted, because a late one could cost a lease; only registrations have a limit
(`worker_protocol.leases`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.access.rate_limit import RateLimitStatus, count_address_request, count_owner_request
from jobs.api.framework.permissions import is_worker_token
from jobs.api.framework.request_actor import resolve_client_address
from jobs.domain.errors import TokenExpired, TokenRevoked, TokenUnknown, TooManyRequests

if TYPE_CHECKING:
    from rest_framework.views import APIView
else:
    APIView = object


AUTHENTICATION_ERRORS = (AuthenticationFailed, TokenUnknown, TokenExpired, TokenRevoked)


class RateLimitedMixin(APIView):
    """Mixin that comes before DRF's view among a view's bases."""

    _status: RateLimitStatus | None = None

    def perform_authentication(self, request: Request) -> None:
        try:
            super().perform_authentication(request)
        except AUTHENTICATION_ERRORS:
            self._admit(count_address_request(_get_client_address(request)))
            raise
        if is_worker_token(request):
            return
        owner_id = request.user.pk
        self._admit(
            count_address_request(_get_client_address(request)) if owner_id is None else count_owner_request(owner_id)
        )

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        if (status := self._status) is not None:
            response["RateLimit-Limit"] = str(status.limit)
            response["RateLimit-Remaining"] = str(status.remaining)
            response["RateLimit-Reset"] = str(status.reset_seconds)
        return super().finalize_response(request, response, *args, **kwargs)

    def _admit(self, status: RateLimitStatus | None) -> None:
        self._status = status
        if status is not None and not status.admitted:
            raise TooManyRequests(status.limit, status.retry_seconds)


def _get_client_address(request: Request) -> str:
    return resolve_client_address(request._request) or ""
