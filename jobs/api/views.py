"""What every view shares: strict input, and JSON whatever the client says it accepts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import IO, Any, TypeVar

from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.shortcuts import get_object_or_404
from rest_framework import exceptions
from rest_framework.negotiation import BaseContentNegotiation, DefaultContentNegotiation
from rest_framework.parsers import BaseParser, JSONParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, Serializer
from rest_framework.utils.json import strict_constant
from rest_framework.views import APIView

from jobs.api.limiting import Limited
from jobs.api.pagination import NewestFirst
from jobs.errors import InvalidInput, StaffOnly
from jobs.querysets.walking import Listing

Row = TypeVar("Row", bound=Model)


class StrictJSONParser(JSONParser):
    """JSON that says one thing only: in UTF-8, every name once, and no numbers that JSON does not know."""

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, object] | None = None
    ) -> Any:
        try:
            text = stream.read().decode()
            return json.loads(text, object_pairs_hook=_each_once, parse_constant=strict_constant)
        # Brackets by the thousand exhaust the decoder's stack.
        except RecursionError:
            raise exceptions.ParseError("The JSON is nested too deeply.") from None
        except UnicodeDecodeError:
            raise exceptions.ParseError("JSON is text in UTF-8, and this is not.") from None
        except json.JSONDecodeError as error:
            raise exceptions.ParseError(f"This is not JSON: {error}") from None
        except ValueError:
            raise exceptions.ParseError(
                "A number in the JSON is none that it knows, or has thousands of digits."
            ) from None


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The last of two would win, and whoever wrote the first would not be told."""
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise InvalidInput(name[:100], "This name stands twice in one object of the JSON; write it once.")
        members[name] = value
    return members


class AlwaysJSON(BaseContentNegotiation):
    """One representation: `Accept` cannot make a request fail, and `?format=` is a view's own."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        return DefaultContentNegotiation().select_parser(request, parsers)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        first = next(iter(renderers))
        return first, first.media_type or ""


class ApiView(Limited, APIView):
    content_negotiation_class = AlwaysJSON
    parser_classes = [StrictJSONParser]


def user_of(request: Request) -> User:
    user = request.user
    if not isinstance(user, User):
        raise exceptions.NotAuthenticated
    return user


def check_staff(request: Request, sentence: str) -> None:
    if not user_of(request).is_staff:
        raise StaffOnly(sentence)


def read_body(serializer: type[Serializer[object]], request: Request) -> Mapping[str, object]:
    return _validated(serializer(data=request.data))


def read_query(serializer: type[Serializer[object]], request: Request) -> Mapping[str, object]:
    for name, given in request.query_params.lists():
        if len(given) > 1:
            raise InvalidInput(name[:100], "Give this parameter once.")
    # Not as a form, of which DRF takes an empty field for one that was left out.
    return _validated(serializer(data=request.query_params.dict()))


def find(rows: QuerySet[Row], identifier: object) -> Row:
    return get_object_or_404(rows, pk=identifier)


def page(rows: QuerySet[Row], request: Request, output: type[BaseSerializer[Any]]) -> Response:
    paginator = NewestFirst()
    return paginator.get_paginated_response(output(paginator.paginate_queryset(rows, request), many=True).data)


def walked_page(
    rows: QuerySet[Row], listing: Listing, ordering: str, request: Request, output: type[BaseSerializer[Any]]
) -> Response:
    """A page of a filtered list: short, with a `next`, when little of what it looked at was wanted."""
    paginator = NewestFirst()
    found = paginator.paginate_walk(rows, listing, ordering, request)
    return paginator.get_paginated_response(output(found, many=True).data)


def _validated(serializer: Serializer[object]) -> Mapping[str, object]:
    serializer.is_valid(raise_exception=True)
    values: Mapping[str, object] = serializer.validated_data
    return values
