"""`Idempotency-Key`: a retried POST creates nothing again and gets the first answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.access.idempotency import IDEMPOTENCY_HEADER, IdempotentResponse, RequestKey, respond_once
from jobs.api.framework.views import ApiView, require_user
from jobs.domain import limits
from jobs.domain.errors import InvalidInput

Parameters = ParamSpec("Parameters")
View = TypeVar("View", bound=ApiView)
Create = Callable[[], Response]
Prepare = Callable[Concatenate[View, Request, Parameters], Create]
Handler = Callable[Concatenate[View, Request, Parameters], HttpResponse]

REPLAYED = "Idempotency-Replayed"
RETENTION = timedelta(seconds=limits.STORED_ANSWER_TTL_SECONDS)
_KEY_PATTERN = re.compile(r"[!-~]{1,255}\Z")
_PARAMETERS = [
    OpenApiParameter(
        IDEMPOTENCY_HEADER,
        str,
        OpenApiParameter.HEADER,
        pattern=r"^[!-~]{1,255}$",
        description="A unique value that you choose for each distinct request. A repeated request with the same body"
        f" changes nothing and gets the first answer, with `{REPLAYED}: true`. A different body or URL is rejected with"
        " 422. While the first request is still being processed, the answer is 409 with Retry-After.",
    ),
]


def idempotent(*, kept: timedelta = RETENTION) -> Callable[[Prepare[View, Parameters]], Handler[View, Parameters]]:
    """Decorate a POST method that creates something.

    The method validates the request and returns a function that creates the object; that function and the stored
    answer commit in one transaction. The key is checked first, because a replay must not be validated again: objects
    that the first request named may have been deleted since.
    """

    def decorate(prepare: Prepare[View, Parameters]) -> Handler[View, Parameters]:
        @wraps(prepare)
        def handle(
            view: View, request: Request, /, *args: Parameters.args, **kwargs: Parameters.kwargs
        ) -> HttpResponse:
            key = _read_request_key(request)
            if key is None:
                return prepare(view, request, *args, **kwargs)()

            def prepare_stored() -> Callable[[], IdempotentResponse]:
                create = prepare(view, request, *args, **kwargs)
                return lambda: _to_stored_response(create())

            return _build_response(respond_once(key, prepare_stored, ttl=kept))

        documented: Handler[View, Parameters] = extend_schema(parameters=_PARAMETERS)(handle)
        return documented

    return decorate


def _read_request_key(request: Request) -> RequestKey | None:
    key = request.headers.get(IDEMPOTENCY_HEADER)
    if key is None:
        return None
    if not _KEY_PATTERN.match(key):
        raise InvalidInput(
            IDEMPOTENCY_HEADER, "The key must be 1 to 255 visible ASCII characters without blanks, such as a UUID."
        )
    return RequestKey(
        require_user(request).pk,
        key,
        route=f"{request.method} {request.path}",
        body_sha256=hashlib.sha256(request.body).hexdigest(),
    )


def _to_stored_response(response: Response) -> IdempotentResponse:
    body: bytes = JSONRenderer().render(response.data)
    return IdempotentResponse(response.status_code, body.decode(), response.headers.get("Location", ""))


def _build_response(stored: IdempotentResponse) -> HttpResponse:
    headers = {"Location": stored.location} if stored.location else {}
    if stored.replayed:
        headers[REPLAYED] = "true"
    return HttpResponse(stored.body, status=stored.status, content_type=JSONRenderer.media_type, headers=headers)
