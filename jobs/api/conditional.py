"""`ETag`, `If-None-Match` and `If-Match`: a reader is spared what it has, and an editor does not undo another's edit.

A tag is a hash of the representation, so it changes with everything that can be seen. Of what can be edited it has two
parts, and the first is a hash of that alone which people change: `If-Match` compares this part, or nobody could edit a
job that runs every second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.http import HttpResponse
from django.utils.http import parse_etags
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import status
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from jobs.errors import Changed

Shown = Mapping[str, Any]
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag of what you have: 304 without a body, if it is still so.",
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag of what you have read: 412 and nothing is changed, if somebody else has edited it since. That"
    " it ran or fired meanwhile is no edit.",
)
NOT_MODIFIED = OpenApiResponse(description="It is still as the ETag in If-None-Match says.")


def show(request: Request, shown: Shown, *, moving: Collection[str] | None = None) -> HttpResponse:
    """The representation with its tag, or 304; `moving`: see `tag_of`."""
    body: bytes = JSONRenderer().render(shown)
    return show_rendered(request, body, _quoted(_hash(body), shown, moving))


def show_rendered(request: Request, body: bytes, tag: str | None = None) -> HttpResponse:
    """The same of what was rendered before; without a tag: it is nothing that somebody edits."""
    tag = tag or tag_of_rendered(body)
    if is_known(request, tag):
        return HttpResponse(status=status.HTTP_304_NOT_MODIFIED, headers={"ETag": tag})
    return HttpResponse(body, content_type=JSONRenderer.media_type, headers={"ETag": tag})


def is_known(request: Request, tag: str) -> bool:
    known = _tags(request.headers.get("If-None-Match", ""))
    return "*" in known or tag in known


def tag_of_rendered(body: bytes) -> str:
    return f'"{_hash(body)}"'


def tag_of(shown: Shown, *, moving: Collection[str] | None = None) -> str:
    """`moving`: the fields that change without anybody's edit, at any depth; None: nobody edits it over the API."""
    return _quoted(_hash(JSONRenderer().render(shown)), shown, moving)


def unless_edited(request: Request, read: Callable[[], Shown], *, moving: Collection[str]) -> Callable[[], None]:
    """What a service is to call once the row is locked: refuses, if it is not what the request's `If-Match` names."""
    wanted = _tags(request.headers.get("If-Match", ""))

    def check() -> None:
        if not wanted or "*" in wanted:
            return
        edition = _edition(read(), moving)
        if edition not in {tag.strip('"').partition("-")[0] for tag in wanted}:
            raise Changed

    return check


def _quoted(digest: str, shown: Shown, moving: Collection[str] | None) -> str:
    return f'"{digest}"' if moving is None else f'"{_edition(shown, moving)}-{digest}"'


def _edition(shown: Shown, moving: Collection[str]) -> str:
    return _hash(JSONRenderer().render(_without(shown, frozenset(moving))))


def _without(value: object, names: frozenset[str]) -> object:
    if isinstance(value, Mapping):
        return {name: _without(each, names) for name, each in value.items() if name not in names}
    if isinstance(value, list):
        return [_without(each, names) for each in value]
    return value


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def _tags(header: str) -> set[str]:
    """Without the mark of a weak one, which a proxy that compresses puts before ours."""
    if not header.strip():
        return set()
    # What is no list of tags matches nothing.
    return {tag.removeprefix("W/") for tag in parse_etags(header.strip())} or {""}
