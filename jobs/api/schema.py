"""What drf-spectacular cannot see by itself: how a request is authenticated, and what any may be refused with.

Apart from the authentication itself, which DRF loads before its own views.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema

from jobs.api.authentication import SCHEME, BearerTokenAuthentication
from jobs.models import LADDER
from jobs.querysets.job_status import JobStatus
from jobs.states import State

# Named in the settings, because several of them are called `status` or `scope` where they are shown.
EXECUTION_STATUSES = [state.value for state in State]
JOB_STATUSES = [status.value for status in JobStatus]
LOGIN_SCOPES = [scope.value for scope in LADDER]


class BearerTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = BearerTokenAuthentication
    name = "bearerToken"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {"type": "http", "scheme": SCHEME}


PROBLEMS = {
    HTTPStatus.BAD_REQUEST: "The request is wrong; `errors` names the fields.",
    HTTPStatus.UNAUTHORIZED: "There is no valid token.",
    HTTPStatus.FORBIDDEN: "The token, or its owner, may not do this.",
    HTTPStatus.NOT_FOUND: "There is no such thing, or it belongs to somebody else.",
    HTTPStatus.CONFLICT: "It does not fit the present state; with Retry-After: send it again then.",
    HTTPStatus.PRECONDITION_FAILED: "Somebody has edited it since it was read (If-Match).",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large, or a quota is used up.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is not application/json.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The Idempotency-Key was used for another request.",
    HTTPStatus.TOO_MANY_REQUESTS: "More requests than are allowed a minute; Retry-After says when to go on.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The database or the object store does not answer; try again after Retry-After.",
}
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
    "example": {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "detail": "priority: Ensure this value is less than or equal to 9.",
        "errors": [{"field": "priority", "message": "Ensure this value is less than or equal to 9."}],
    },
}


def say_anything(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """drf-spectacular's hook: a JSON value that may be null is any value, not "either any value or null"."""
    _say_anything(result)
    return result


def _say_anything(part: object) -> None:
    if isinstance(part, dict):
        if {} in part.get("oneOf", []):
            del part["oneOf"]
        for each in part.values():
            _say_anything(each)
    elif isinstance(part, list):
        for each in part:
            _say_anything(each)


def add_problems(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """drf-spectacular's hook: what every operation may be refused with, which is raised far from its view."""
    components = result.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = _PROBLEM
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    components["responses"] = {
        _name(status): {"description": description, "content": content} for status, description in PROBLEMS.items()
    }
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
    if "{" in path:
        yield HTTPStatus.NOT_FOUND
    if method != "get":
        yield from (HTTPStatus.CONFLICT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    if "If-Match" in headers:
        yield HTTPStatus.PRECONDITION_FAILED
    if "Idempotency-Key" in headers:
        yield HTTPStatus.UNPROCESSABLE_ENTITY


def _name(status: HTTPStatus) -> str:
    return status.phrase.replace(" ", "")


__all__ = ["BearerTokenScheme"]
