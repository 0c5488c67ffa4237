"""`ETag`, `If-None-Match` and `If-Match`: cheap polling and protection against lost updates.

An ETag is a hash of the representation. Where some fields change without an edit ("volatile", such as a job's status),
the tag is `editable-whole`, and `If-Match` compares only the first part: otherwise nobody could edit a job that runs
every second.
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

from jobs.domain.errors import PreconditionFailed

Representation = Mapping[str, Any]
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag of your copy. The answer is 304 without a body if nothing has changed.",
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag of the version you have read. The answer is 412, and nothing changes, if another client has"
    " edited the object since. Runs and firings do not count as edits.",
)
NOT_MODIFIED = OpenApiResponse(description="Not modified: the ETag in If-None-Match is current.")


def respond_conditionally(
    request: Request, representation: Representation, *, volatile_fields: Collection[str] = ()
) -> HttpResponse:
    """Return the representation with its ETag, or 304 if the client has it."""
    body: bytes = JSONRenderer().render(representation)
    return respond_conditionally_rendered(request, body, _format_etag(_hash(body), representation, volatile_fields))


def respond_conditionally_rendered(request: Request, body: bytes, tag: str | None = None) -> HttpResponse:
    """Return a rendered body with its ETag, or 304 if the client has it."""
    tag = tag or compute_rendered_etag(body)
    if matches_if_none_match(request, tag):
        return HttpResponse(status=status.HTTP_304_NOT_MODIFIED, headers={"ETag": tag})
    return HttpResponse(body, content_type=JSONRenderer.media_type, headers={"ETag": tag})


def matches_if_none_match(request: Request, tag: str) -> bool:
    known = _parse_etags(request.headers.get("If-None-Match", ""))
    return "*" in known or tag in known


def compute_rendered_etag(body: bytes) -> str:
    return f'"{_hash(body)}"'


def compute_etag(representation: Representation, *, volatile_fields: Collection[str] = ()) -> str:
    """Return the ETag of a representation. `volatile_fields` change without an edit, at any depth."""
    return _format_etag(_hash(JSONRenderer().render(representation)), representation, volatile_fields)


def make_if_match_check(
    request: Request, read: Callable[[], Representation], *, volatile_fields: Collection[str] = ()
) -> Callable[[], None]:
    """Return a check for services to call under the row lock: it raises unless `If-Match` names the current version."""
    wanted = _parse_etags(request.headers.get("If-Match", ""))

    def check() -> None:
        if not wanted or "*" in wanted:
            return
        current = _hash_editable(read(), volatile_fields)
        if current not in {tag.strip('"').partition("-")[0] for tag in wanted}:
            raise PreconditionFailed

    return check


def _format_etag(digest: str, representation: Representation, volatile_fields: Collection[str]) -> str:
    return f'"{_hash_editable(representation, volatile_fields)}-{digest}"' if volatile_fields else f'"{digest}"'


def _hash_editable(representation: Representation, volatile_fields: Collection[str]) -> str:
    return _hash(JSONRenderer().render(_drop_fields(representation, frozenset(volatile_fields))))


def _drop_fields(value: object, names: frozenset[str]) -> object:
    if isinstance(value, Mapping):
        return {name: _drop_fields(each, names) for name, each in value.items() if name not in names}
    if isinstance(value, list):
        return [_drop_fields(each, names) for each in value]
    return value


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def _parse_etags(header: str) -> set[str]:
    """Parse a list of ETags, dropping the `W/` that a compressing proxy puts before ours."""
    if not header.strip():
        return set()
    # A malformed header matches no tag.
    return {tag.removeprefix("W/") for tag in parse_etags(header.strip())} or {""}
