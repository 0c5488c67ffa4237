"""Base of the API's resources: one shared transport, safe path segments and pagination.

Each resource module holds the values that the server returns and the class with its calls; `Client` combines the
classes. Fields that callers need are checked once, in `parse`; `raw` keeps the whole answer for `-o json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

from punctual_client.errors import ServerError
from punctual_client.json_fields import JsonObject, as_objects

if TYPE_CHECKING:
    from punctual_client.transport import Parameters, Transport

MAX_PAGE_SIZE = 100


class ApiCalls:
    _transport: Transport

    def _list(self, path: str, filters: Mapping[str, str], limit: int) -> Iterator[JsonObject]:
        return islice(self._iterate_pages(path, {**filters, "limit": min(limit, MAX_PAGE_SIZE)}), limit)

    def _iterate_pages(self, path: str, parameters: Parameters) -> Iterator[JsonObject]:
        seen: set[str] = set()
        while True:
            answer = self._transport.get(path, parameters)
            yield from as_objects(answer.get("results"))
            next_page = answer.get("next")
            if not next_page:
                return
            if not isinstance(next_page, str):
                raise ServerError("The server's answer names its next page in an unknown way.")
            # Use only the query: behind a proxy the server may not know its public address.
            parameters = dict(parse_qsl(urlsplit(next_page).query))
            if next_page in seen:
                raise ServerError("The server's pages form a loop: listing them would never end.")
            seen.add(next_page)


def omit_none(**fields: object) -> dict[str, object]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def filter_fields(**filters: str | None) -> dict[str, str]:
    """Return the query parameters that have a value; a trailing underscore (`from_`) is dropped."""
    return {name.removesuffix("_"): value for name, value in filters.items() if value is not None}


def path_segment(identifier: str) -> str:
    """Quote an id so that it stays one segment of the path, whatever was typed."""
    return quote(identifier, safe="")
