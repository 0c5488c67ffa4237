"""Lists by cursor, newest first or as asked: a page costs the same wherever it lies, and new rows never shift it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.cursors import open_sealed, seal
from jobs.errors import InvalidInput
from jobs.querysets.walking import Listing, Position, walk_page

DEFAULT_LIMIT = 50
MAX_LIMIT = 500


class NewestFirst(BasePagination):
    """For rows whose ids are UUIDv7, so that the id is the order of creation."""

    def __init__(self) -> None:
        self._next: str | None = None

    def paginate_walk(self, rows: QuerySet[Any], listing: Listing, ordering: str, request: Request) -> list[Any]:
        """A page of a list that is filtered and ordered; `rows` are read by the ids that the walk found."""
        cursor = request.query_params.get("cursor")
        position = None if cursor is None else _decode_position(cursor, request.path, ordering)
        walked = walk_page(listing, position, _limit(request.query_params.get("limit")))
        if walked.end is not None:
            self._next = next_path(request, _encode_position(walked.end, request.path, ordering))
        read = {row.pk: row for row in rows.filter(pk__in=walked.ids)}
        return [read[identifier] for identifier in walked.ids if identifier in read]

    def paginate_queryset(  # type: ignore[override]  # pages of queries only: a cursor needs an order in the database
        self, queryset: QuerySet[Any], request: Request, view: APIView | None = None
    ) -> list[Any]:
        limit = _limit(request.query_params.get("limit"))
        cursor = request.query_params.get("cursor")
        if cursor is not None:
            queryset = queryset.filter(id__lt=_decode(cursor))
        rows = list(queryset.order_by("-id")[: limit + 1])
        page = rows[:limit]
        if len(rows) > limit:
            self._next = next_path(request, _encode(page[-1].pk))
        return page

    def get_paginated_response(self, data: Sequence[object]) -> Response:
        return Response({"results": data, "next": self._next})

    def get_paginated_response_schema(self, schema: dict[str, object]) -> dict[str, object]:
        return {
            "type": "object",
            "required": ["results", "next"],
            "properties": {
                "results": schema,
                "next": {"type": ["string", "null"], "description": "The path of the next page; null on the last one."},
            },
        }


def next_path(request: Request, cursor: str) -> str:
    """The same question, from there on."""
    query = request.query_params.copy()
    query["cursor"] = cursor
    return f"{request.path}?{query.urlencode()}"


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MAX_LIMIT):
        raise InvalidInput("limit", f"The limit must be a whole number from 1 to {MAX_LIMIT}.")
    return int(text)


def _encode(identifier: UUID) -> str:
    return base64.urlsafe_b64encode(identifier.bytes).decode().rstrip("=")


def _decode(cursor: str) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(cursor + "=="))
    except (ValueError, binascii.Error):
        raise _invalid_cursor() from None


def _encode_position(position: Position, path: str, ordering: str) -> str:
    """Sealed: the last row that was looked at need not be one that is shown."""
    return seal([path, ordering, *(each.isoformat() if isinstance(each, datetime) else str(each) for each in position)])


def _decode_position(cursor: str, path: str, ordering: str) -> Position:
    """Only what `_encode_position` can have written for this list and ordering, which decides what is compared."""
    try:
        *written, identifier = open_sealed(cursor)
        keys = written[2:]
        if written[:2] != [path, ordering] or len(keys) != (0 if ordering.endswith("created") else 1):
            raise ValueError(cursor)
        return (*(_key(key, ordering) for key in keys), UUID(str(identifier)))
    except (ValueError, TypeError, OverflowError):
        raise _invalid_cursor() from None


def _key(word: object, ordering: str) -> str | datetime:
    if not isinstance(word, str) or "\0" in word:
        raise ValueError(word)
    if ordering.endswith("name"):
        word.encode()
        return word
    moment = datetime.fromisoformat(word)
    if moment.utcoffset() is None:
        raise ValueError(word)
    # Postgres knows fewer offsets than Python does.
    return moment.astimezone(UTC)


def _invalid_cursor() -> InvalidInput:
    return InvalidInput("cursor", "The cursor is not valid here; take it from the `next` of a page of this very list.")
