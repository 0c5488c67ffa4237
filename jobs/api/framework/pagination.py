"""Cursor pagination: every page costs the same, and new rows never shift later pages."""

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

from jobs.api.framework.cursors import open_cursor, seal_cursor
from jobs.db.keyset import Listing, Position, read_keyset_page
from jobs.domain.errors import InvalidInput

DEFAULT_LIMIT = 50
MAX_LIMIT = 500


class NewestFirstPagination(BasePagination):
    """Pages in order of creation, which is the order of UUIDv7 ids, or by a keyset listing."""

    def __init__(self) -> None:
        self._next: str | None = None

    def paginate_listing(self, rows: QuerySet[Any], listing: Listing, ordering: str, request: Request) -> list[Any]:
        """Return a page of a filtered, ordered list; `rows` loads the objects by the ids of the listing."""
        cursor = request.query_params.get("cursor")
        position = None if cursor is None else _decode_position(cursor, request.path, ordering)
        page = read_keyset_page(listing, position, _parse_limit(request.query_params.get("limit")))
        if page.end is not None:
            self._next = build_next_path(request, _encode_position(page.end, request.path, ordering))
        found = {row.pk: row for row in rows.filter(pk__in=page.ids)}
        return [found[identifier] for identifier in page.ids if identifier in found]

    def paginate_queryset(  # type: ignore[override]  # pages of queries only: a cursor needs an order in the database
        self, queryset: QuerySet[Any], request: Request, view: APIView | None = None
    ) -> list[Any]:
        limit = _parse_limit(request.query_params.get("limit"))
        cursor = request.query_params.get("cursor")
        if cursor is not None:
            queryset = queryset.filter(id__lt=_decode_id(cursor))
        rows = list(queryset.order_by("-id")[: limit + 1])
        page = rows[:limit]
        if len(rows) > limit:
            self._next = build_next_path(request, _encode_id(page[-1].pk))
        return page

    def get_paginated_response(self, data: Sequence[object]) -> Response:
        return Response({"results": data, "next": self._next})

    def get_paginated_response_schema(self, schema: dict[str, object]) -> dict[str, object]:
        return {
            "type": "object",
            "required": ["results", "next"],
            "properties": {
                "results": schema,
                "next": {"type": ["string", "null"], "description": "Path of the next page; null on the last one."},
            },
        }


def build_next_path(request: Request, cursor: str) -> str:
    """Return the request's path with its cursor replaced."""
    query = request.query_params.copy()
    query["cursor"] = cursor
    return f"{request.path}?{query.urlencode()}"


def _parse_limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MAX_LIMIT):
        raise InvalidInput("limit", f"The limit must be a whole number from 1 to {MAX_LIMIT}.")
    return int(text)


def _encode_id(identifier: UUID) -> str:
    return base64.urlsafe_b64encode(identifier.bytes).decode().rstrip("=")


def _decode_id(cursor: str) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(cursor + "=="))
    except (ValueError, binascii.Error):
        raise _invalid_cursor() from None


def _encode_position(position: Position, path: str, ordering: str) -> str:
    """Seal the position: the last row read may be one that the user must not see."""
    return seal_cursor(
        [path, ordering, *(each.isoformat() if isinstance(each, datetime) else str(each) for each in position)]
    )


def _decode_position(cursor: str, path: str, ordering: str) -> Position:
    """Open a cursor of `_encode_position`; reject one of another list or ordering, whose keys have other types."""
    try:
        *head, identifier = open_cursor(cursor)
        keys = head[2:]
        if head[:2] != [path, ordering] or len(keys) != (0 if ordering.endswith("created") else 1):
            raise ValueError(cursor)
        return (*(_parse_key(key, ordering) for key in keys), UUID(str(identifier)))
    except (ValueError, TypeError, OverflowError):
        raise _invalid_cursor() from None


def _parse_key(text: object, ordering: str) -> str | datetime:
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(text)
    if ordering.endswith("name"):
        text.encode()
        return text
    instant = datetime.fromisoformat(text)
    if instant.utcoffset() is None:
        raise ValueError(text)
    # Postgres supports fewer offsets than Python.
    return instant.astimezone(UTC)


def _invalid_cursor() -> InvalidInput:
    return InvalidInput("cursor", "The cursor is not valid here; take it from the `next` of a page of this list.")
