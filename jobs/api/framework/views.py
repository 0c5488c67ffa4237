"""Base view and helpers: strict input, JSON output regardless of `Accept`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import copy
from functools import cache
from typing import IO, Any, TypeVar

from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404
from rest_framework import exceptions, status
from rest_framework.negotiation import BaseContentNegotiation, DefaultContentNegotiation
from rest_framework.parsers import BaseParser, JSONParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, Serializer
from rest_framework.utils.json import strict_constant
from rest_framework.views import APIView

from jobs.api.framework.deferred_response import defer_response
from jobs.api.framework.pagination import NewestFirstPagination
from jobs.api.framework.throttling import RateLimitedMixin
from jobs.db.keyset import Listing
from jobs.db.waiting import Steps
from jobs.domain.errors import InvalidInput, StaffOnly
from jobs.models.visibility import is_operator

Row = TypeVar("Row", bound=Model)


class StrictJSONParser(JSONParser):
    """JSON without ambiguity: UTF-8, no repeated names, no NaN or Infinity."""

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, object] | None = None
    ) -> Any:
        try:
            text = stream.read().decode()
            return json.loads(text, object_pairs_hook=_reject_duplicate_names, parse_constant=strict_constant)
        # Thousands of nested brackets exhaust the decoder's stack.
        except RecursionError:
            raise exceptions.ParseError("The JSON is nested too deeply.") from None
        except UnicodeDecodeError:
            raise exceptions.ParseError("The body is not UTF-8 text.") from None
        except json.JSONDecodeError as error:
            raise exceptions.ParseError(f"The body is not JSON: {error}") from None
        except ValueError:
            raise exceptions.ParseError(
                "The JSON has a number that is not finite, or one of thousands of digits."
            ) from None


def _reject_duplicate_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Reject an object that repeats a name, whose first value would be lost silently."""
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise InvalidInput(name[:100], "This name appears twice in one JSON object; give it once.")
        members[name] = value
    return members


class JSONOnlyNegotiation(BaseContentNegotiation):
    """Always JSON: `Accept` never fails a request, and `?format=` stays free for views."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        return DefaultContentNegotiation().select_parser(request, parsers)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        first = next(iter(renderers))
        return first, first.media_type or ""


class ApiView(RateLimitedMixin, APIView):
    content_negotiation_class = JSONOnlyNegotiation
    parser_classes = [StrictJSONParser]

    def respond_later(self, request: Request, steps: Steps[HttpResponse]) -> HttpResponseBase:
        """Return the steps' response, finalized as if the view had returned it or raised their error."""

        def finish(response: HttpResponse) -> HttpResponse:
            # DRF's annotation is too narrow.
            finished = self.finalize_response(request, response)  # type: ignore[arg-type]
            if isinstance(finished, Response):
                finished.render()
            return finished

        return defer_response(steps, finish=finish, fail=self.handle_exception)


def require_user(request: Request) -> User:
    user = request.user
    if not isinstance(user, User):
        raise exceptions.NotAuthenticated
    return user


def require_staff(request: Request, message: str) -> None:
    if not is_operator(require_user(request)):
        raise StaffOnly(message)


def read_body(serializer: type[Serializer[object]], request: Request) -> Mapping[str, object]:
    return _validate(serializer, request.data)


def read_query(serializer: type[Serializer[object]], request: Request) -> Mapping[str, object]:
    for name, given in request.query_params.lists():
        if len(given) > 1:
            raise InvalidInput(name[:100], "Give this parameter once.")
    # As a dict: DRF treats an empty field of a QueryDict as omitted.
    return _validate(serializer, request.query_params.dict())


def respond_created(request: Request, identifier: object, data: object) -> Response:
    """Return 201 with a new object and its location below the request's path."""
    headers = {"Location": f"{request.path}/{identifier}"}
    return Response(data, status=status.HTTP_201_CREATED, headers=headers)


def get_or_404(rows: QuerySet[Row], identifier: object) -> Row:
    return get_object_or_404(rows, pk=identifier)


def paginate(rows: QuerySet[Row], request: Request, output: type[BaseSerializer[Any]]) -> Response:
    paginator = NewestFirstPagination()
    return paginator.get_paginated_response(output(paginator.paginate_queryset(rows, request), many=True).data)


def paginate_filtered(
    rows: QuerySet[Row], listing: Listing, ordering: str, request: Request, output: type[BaseSerializer[Any]]
) -> Response:
    """Return a page of a filtered list, which may be short and still have a `next` if few rows matched."""
    paginator = NewestFirstPagination()
    page = paginator.paginate_listing(rows, listing, ordering, request)
    return paginator.get_paginated_response(output(page, many=True).data)


def _validate(kind: type[Serializer[object]], data: object) -> Mapping[str, object]:
    serializer = copy(_build_serializer(kind))
    serializer.initial_data = data
    serializer.is_valid(raise_exception=True)
    values: Mapping[str, object] = serializer.validated_data
    return values


@cache
def _build_serializer(kind: type[Serializer[object]]) -> Serializer[object]:
    """Build the fields once per process: DRF copies all of them for each serializer, a fifth of a submission.

    Requests share them, so a field keeps nothing of the value that it validates.
    """
    serializer = kind()
    _ = serializer.fields  # built at their first use
    return serializer
