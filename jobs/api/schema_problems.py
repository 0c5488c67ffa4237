"""What any operation may be refused with, which is raised far from its view."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

from jobs.api.problems import CONTENT_TYPE


class Refusal(NamedTuple):
    means: str
    example: str
    field: str | None = None


REFUSALS = {
    HTTPStatus.BAD_REQUEST: Refusal(
        "The request is wrong; `errors` names the fields.", "Ensure this value is less than or equal to 9.", "priority"
    ),
    HTTPStatus.UNAUTHORIZED: Refusal("There is no valid token.", "Authentication credentials were not provided."),
    HTTPStatus.FORBIDDEN: Refusal(
        "The token, or its owner, may not do this.", "This needs a token of scope operate; this one has read."
    ),
    HTTPStatus.NOT_FOUND: Refusal(
        "There is no such thing, or it belongs to somebody else.",
        "There is no such thing, or it belongs to somebody else.",
    ),
    HTTPStatus.CONFLICT: Refusal(
        "It does not fit the present state; with Retry-After: send it again then.",
        "The job is cancelled; submit it anew to run it.",
    ),
    HTTPStatus.PRECONDITION_FAILED: Refusal(
        "Somebody has edited it since it was read (If-Match).",
        "Somebody has changed it since you read it: read it again, and send your change with the new ETag.",
    ),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Refusal(
        "The body is too large, or a quota is used up.",
        "The owner's storage quota is used up; delete what is no longer needed, or ask for a larger one.",
    ),
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: Refusal(
        "The body is not application/json.", 'Unsupported media type "text/plain" in request.'
    ),
    HTTPStatus.UNPROCESSABLE_ENTITY: Refusal(
        "The Idempotency-Key was used for another request.",
        "The key was sent with another request before; choose a new one for each request that is not the same.",
        "Idempotency-Key",
    ),
    HTTPStatus.TOO_MANY_REQUESTS: Refusal(
        "More requests than are allowed a minute; Retry-After says when to go on.",
        "You may make 6000 requests a minute, and have; try again in 3 s, or ask for a larger quota.",
    ),
    HTTPStatus.SERVICE_UNAVAILABLE: Refusal(
        "The database or the object store does not answer; try again after Retry-After.",
        "The object store does not answer; try again in a moment.",
    ),
}
# They look for the job that the query names; other lists are empty without it.
NAMING_A_JOB = ("audit_firings", "logs_search")
_TEXT = {"type": "string"}
_PROBLEM = {
    "type": "object",
    "description": "RFC 9457.",
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"field": _TEXT, "message": _TEXT},
                "required": ["field", "message"],
            },
        },
    },
    "required": ["type", "title", "status", "detail", "errors"],
}


def add_problems(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """drf-spectacular's hook."""
    components = result.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = _PROBLEM
    components["responses"] = {_name(status): _response(status, refusal) for status, refusal in REFUSALS.items()}
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            for status in _problems(path, method, operation):
                responses.setdefault(str(status.value), {"$ref": f"#/components/responses/{_name(status)}"})
            operation["responses"] = dict(sorted(responses.items()))
    return result


def _problems(path: str, method: str, operation: dict[str, Any]) -> Iterator[HTTPStatus]:
    headers = {each["name"] for each in operation.get("parameters", []) if each["in"] == "header"}
    yield from (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    yield from (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
    if "{" in path or operation["operationId"] in NAMING_A_JOB:
        yield HTTPStatus.NOT_FOUND
    if method != "get":
        yield from (HTTPStatus.CONFLICT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    if "If-Match" in headers:
        yield HTTPStatus.PRECONDITION_FAILED
    if "Idempotency-Key" in headers:
        yield HTTPStatus.UNPROCESSABLE_ENTITY


def _response(status: HTTPStatus, refusal: Refusal) -> dict[str, Any]:
    place = "" if refusal.field is None else f"{refusal.field}: "
    example = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": f"{place}{refusal.example}",
        "errors": [{"field": refusal.field, "message": refusal.example}] if refusal.field else [],
    }
    content = {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}
    return {"description": refusal.means, "content": {CONTENT_TYPE: content}}


def _name(status: HTTPStatus) -> str:
    return status.phrase.replace(" ", "")
