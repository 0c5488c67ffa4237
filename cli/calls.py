"""What every verb of the API is made of: one transport, ids that stay one segment, pages that are followed.

Each group of verbs is a class of its own in a `*_calls` module; `Client` is all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from urllib.parse import parse_qsl, quote, urlsplit

from cli.answers import JsonObject, as_objects
from cli.errors import ServerFailureError
from cli.transport import Parameters, Transport

LARGEST_PAGE = 100


class Calls:
    _transport: Transport

    def _listing(self, path: str, filters: Mapping[str, str], limit: int) -> Iterator[JsonObject]:
        return islice(self._pages(path, {**filters, "limit": min(limit, LARGEST_PAGE)}), limit)

    def _pages(self, path: str, parameters: Parameters) -> Iterator[JsonObject]:
        seen: set[str] = set()
        while True:
            answer = self._transport.get(path, parameters)
            yield from as_objects(answer.get("results"))
            following = answer.get("next")
            if not following:
                return
            if not isinstance(following, str):
                raise ServerFailureError("The server's answer names its next page in a way that is not known.")
            # Only the query: behind a proxy the server may not know the address it is reached under.
            parameters = dict(parse_qsl(urlsplit(following).query))
            if following in seen:
                raise ServerFailureError("The server's pages lead back to one that was read: they would never end.")
            seen.add(following)


def given(**filters: str | None) -> dict[str, str]:
    return {name: value for name, value in filters.items() if value is not None}


def segment(identifier: str) -> str:
    # An id that is typed by hand must stay one segment of the path.
    return quote(identifier, safe="")
