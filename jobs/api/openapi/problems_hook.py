"""drf-spectacular hook that adds error responses, which are raised far from the views, to every operation."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

from jobs.access.idempotency import IDEMPOTENCY_HEADER
from jobs.api.framework.problems import CONTENT_TYPE
from jobs.domain import errors


class ErrorResponse(NamedTuple):
    description: str
    example: str
    field: str | None = None


ERROR_RESPONSES = {
    HTTPStatus.BAD_REQUEST: ErrorResponse(
        "Invalid input; `errors` names the fields.", "Ensure this value is less than or equal to 9.", "priority"
    ),
    HTTPStatus.UNAUTHORIZED: ErrorResponse("No valid token.", "Authentication credentials were not provided."),
    HTTPStatus.FORBIDDEN: ErrorResponse(
        "The token or its owner lacks the permission.", "This needs a token of scope operate; this one has read."
    ),
    HTTPStatus.NOT_FOUND: ErrorResponse("Not found, or not visible to you.", str(errors.NotFound())),
    HTTPStatus.CONFLICT: ErrorResponse(
        "Conflict with the current state. With Retry-After: retry after that time.", str(errors.RequestInProgress())
    ),
    HTTPStatus.PRECONDITION_FAILED: ErrorResponse(
        "Edited by another client since it was read (If-Match).", str(errors.PreconditionFailed())
    ),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ErrorResponse(
        "Body too large, or storage quota used up.", str(errors.QuotaExceeded())
    ),
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: ErrorResponse(
        "Body is not application/json.", 'Unsupported media type "text/plain" in request.'
    ),
    HTTPStatus.UNPROCESSABLE_ENTITY: ErrorResponse(
        "The Idempotency-Key was used for a different request.",
        errors.IdempotencyKeyReused(IDEMPOTENCY_HEADER).message,
        IDEMPOTENCY_HEADER,
    ),
    HTTPStatus.TOO_MANY_REQUESTS: ErrorResponse(
        "Rate limit exceeded; retry after Retry-After.", str(errors.TooManyRequests(6000, 3))
    ),
    HTTPStatus.SERVICE_UNAVAILABLE: ErrorResponse(
        "The database or the object store does not answer; retry after Retry-After.", str(errors.StorageUnavailable())
    ),
}
# Lists that answer 404 if `job_id` names no visible job; the others are then empty.
OPERATIONS_FILTERED_BY_JOB = ("audit_attempts", "audit_firings", "logs_search")
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
    """Add the Problem schema and the possible error responses of every operation."""
    components = result.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = _PROBLEM
    components["responses"] = {
        _get_component_name(status): _build_response_component(status, response)
        for status, response in ERROR_RESPONSES.items()
    }
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            for status in _list_error_statuses(path, method, operation):
                responses.setdefault(
                    str(status.value), {"$ref": f"#/components/responses/{_get_component_name(status)}"}
                )
            operation["responses"] = dict(sorted(responses.items()))
    return result


def _list_error_statuses(path: str, method: str, operation: dict[str, Any]) -> Iterator[HTTPStatus]:
    headers = {each["name"] for each in operation.get("parameters", []) if each["in"] == "header"}
    yield from (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    yield from (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
    if "{" in path or operation["operationId"] in OPERATIONS_FILTERED_BY_JOB:
        yield HTTPStatus.NOT_FOUND
    if method != "get":
        yield from (HTTPStatus.CONFLICT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    if "If-Match" in headers:
        yield HTTPStatus.PRECONDITION_FAILED
    if IDEMPOTENCY_HEADER in headers:
        yield HTTPStatus.UNPROCESSABLE_ENTITY


def _build_response_component(status: HTTPStatus, response: ErrorResponse) -> dict[str, Any]:
    prefix = "" if response.field is None else f"{response.field}: "
    example = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": f"{prefix}{response.example}",
        "errors": [{"field": response.field, "message": response.example}] if response.field else [],
    }
    content = {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}
    return {"description": response.description, "content": {CONTENT_TYPE: content}}


def _get_component_name(status: HTTPStatus) -> str:
    return status.phrase.replace(" ", "")
