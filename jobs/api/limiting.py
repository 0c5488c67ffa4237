"""Requests a minute: counted once it is known who asks, before anything is done for them, and told in every answer.

Workers are not counted: there are as many of their requests as the fleet makes, and none of them may be late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.origin import address_of
from jobs.api.permissions import is_worker_token
from jobs.errors import TokenExpired, TokenRevoked, TokenUnknown, TooManyRequests
from jobs.services.rate_limit import Standing, take_for_address, take_for_owner

if TYPE_CHECKING:
    from rest_framework.views import APIView
else:
    APIView = object


NOT_KNOWN = (AuthenticationFailed, TokenUnknown, TokenExpired, TokenRevoked)


class Limited(APIView):
    """Stands before DRF's view among a view's bases."""

    _standing: Standing | None = None

    def perform_authentication(self, request: Request) -> None:
        try:
            super().perform_authentication(request)
        except NOT_KNOWN:
            self._admit(take_for_address(_address(request)))
            raise
        if is_worker_token(request):
            return
        owner_id = request.user.pk
        self._admit(take_for_address(_address(request)) if owner_id is None else take_for_owner(owner_id))

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        if (standing := self._standing) is not None:
            response["RateLimit-Limit"] = str(standing.limit)
            response["RateLimit-Remaining"] = str(standing.remaining)
            response["RateLimit-Reset"] = str(standing.reset_seconds)
        return super().finalize_response(request, response, *args, **kwargs)

    def _admit(self, standing: Standing | None) -> None:
        self._standing = standing
        if standing is not None and not standing.admitted:
            raise TooManyRequests(standing.limit, standing.retry_seconds)


def _address(request: Request) -> str:
    return address_of(request._request) or ""
