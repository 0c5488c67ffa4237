"""`Idempotency-Key`: a POST that creates may be sent again, and is answered as it was the first time."""

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

from jobs import conf
from jobs.api.views import ApiView, user_of
from jobs.errors import InvalidInput
from jobs.services.repeating import HEADER, Answer, Asked, answer_once, find_answer

Parameters = ParamSpec("Parameters")
View = TypeVar("View", bound=ApiView)
Create = Callable[[], Response]
Prepare = Callable[Concatenate[View, Request, Parameters], Create]
Handler = Callable[Concatenate[View, Request, Parameters], HttpResponse]

REPLAYED = "Idempotency-Replayed"
KEPT = timedelta(seconds=conf.ANSWER_KEPT_SECONDS)
_KEY = re.compile(r"[!-~]{1,255}\Z")
_PARAMETERS = [
    OpenApiParameter(
        HEADER,
        str,
        OpenApiParameter.HEADER,
        pattern=r"^[!-~]{1,255}$",
        description="Yours to choose, anew for every request that is not the same: sent again with the same body, it"
        f" does nothing and is answered as before, with `{REPLAYED}: true`. Another body or address is refused with"
        " 422; while the first is not answered yet, 409 says when to come back.",
    ),
]


def repeatable(*, kept: timedelta = KEPT) -> Callable[[Prepare[View, Parameters]], Handler[View, Parameters]]:
    """For a POST that creates something.

    The method checks what it is asked for and returns what is left to do: that is done in one transaction with the
    memory of its answer. An answer that was given before comes first: what it needed may be gone by now.
    """

    def decorate(prepare: Prepare[View, Parameters]) -> Handler[View, Parameters]:
        @wraps(prepare)
        def handle(
            view: View, request: Request, /, *args: Parameters.args, **kwargs: Parameters.kwargs
        ) -> HttpResponse:
            asked = _asked(request)
            if asked is None:
                return prepare(view, request, *args, **kwargs)()
            answer = find_answer(asked)
            if answer is None:
                create = prepare(view, request, *args, **kwargs)
                answer = answer_once(asked, lambda: _answer(create()), kept=kept)
            return _response(answer)

        documented: Handler[View, Parameters] = extend_schema(parameters=_PARAMETERS)(handle)
        return documented

    return decorate


def _asked(request: Request) -> Asked | None:
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not _KEY.match(key):
        raise InvalidInput(HEADER, "The key is 1 to 255 visible ASCII characters, without blanks; a UUID will do.")
    return Asked(
        user_of(request).pk,
        key,
        route=f"{request.method} {request.path}",
        body_sha256=hashlib.sha256(request.body).hexdigest(),
    )


def _answer(response: Response) -> Answer:
    body: bytes = JSONRenderer().render(response.data)
    return Answer(response.status_code, body.decode(), response.headers.get("Location", ""))


def _response(answer: Answer) -> HttpResponse:
    headers = {"Location": answer.location} if answer.location else {}
    if answer.replayed:
        headers[REPLAYED] = "true"
    return HttpResponse(answer.body, status=answer.status, content_type=JSONRenderer.media_type, headers=headers)
