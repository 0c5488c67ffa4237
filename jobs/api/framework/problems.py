"""Maps every error to an RFC 9457 problem+json response and its status code."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus

import psycopg
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.views import defaults
from rest_framework import exceptions

from jobs.domain import errors

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 2
MAX_REPORTED_ERRORS = 50
# Messages may quote the input, which can be a megabyte.
MAX_MESSAGE_LENGTH = 1000
MAX_FIELD_LENGTH = 300

STATUS_BY_ERROR: dict[type[errors.PunctualError], HTTPStatus] = {
    errors.InvalidInput: HTTPStatus.BAD_REQUEST,
    errors.IdempotencyKeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NotPermitted: HTTPStatus.FORBIDDEN,
    errors.TokenUnknown: HTTPStatus.UNAUTHORIZED,
    errors.TokenExpired: HTTPStatus.UNAUTHORIZED,
    errors.TokenRevoked: HTTPStatus.UNAUTHORIZED,
    errors.LoginRefused: HTTPStatus.UNAUTHORIZED,
    errors.TooManyLoginAttempts: HTTPStatus.TOO_MANY_REQUESTS,
    errors.LoginCounterUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.InsufficientScope: HTTPStatus.FORBIDDEN,
    errors.OwnersOnly: HTTPStatus.FORBIDDEN,
    errors.StaffOnly: HTTPStatus.FORBIDDEN,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.PreconditionFailed: HTTPStatus.PRECONDITION_FAILED,
    errors.ArtifactHashMismatch: HTTPStatus.CONFLICT,
    errors.TooManyRequests: HTTPStatus.TOO_MANY_REQUESTS,
    errors.TooManyRegistrations: HTTPStatus.TOO_MANY_REQUESTS,
    errors.TooManyDownloads: HTTPStatus.TOO_MANY_REQUESTS,
    errors.TooManyExpensiveReads: HTTPStatus.TOO_MANY_REQUESTS,
    errors.ExpensiveReadsBusy: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.QuotaExceeded: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.JobQuotaExceeded: HTTPStatus.FORBIDDEN,
    errors.WorkerLeaseLost: HTTPStatus.CONFLICT,
    errors.StorageUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class FieldError:
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Problem:
    status: int
    detail: str
    errors: Sequence[FieldError] = ()
    type: str = "about:blank"

    def response(self, headers: Mapping[str, str] | None = None) -> HttpResponse:
        body = {
            "type": self.type,
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "errors": [asdict(error) for error in self.errors],
        }
        return HttpResponse(json.dumps(body), status=self.status, content_type=CONTENT_TYPE, headers=headers)


def problem_response(error: Exception, context: Mapping[str, object]) -> HttpResponse:
    """Turn any exception of a view into a problem response; DRF's exception handler."""
    match error:
        case errors.PunctualError():
            response = _respond_to_punctual_error(error)
        case exceptions.ValidationError():
            response = build_invalid_response(list(_flatten(error.detail)))
        case exceptions.APIException():
            response = _respond_to_api_exception(error)
        # ObjectDoesNotExist: another request deleted the row during this one.
        case Http404() | ObjectDoesNotExist():
            response = _respond_to_punctual_error(errors.NotFound())
        case PermissionDenied():
            response = Problem(HTTPStatus.FORBIDDEN, str(error) or "You may not do this.").response()
        case RequestDataTooBig():
            detail = "The request body is too large; upload programs as artifacts."
            response = Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail).response()
        case SuspiciousOperation():
            response = Problem(HTTPStatus.BAD_REQUEST, "The request is malformed.").response()
        case IntegrityError() if isinstance(error.__cause__, psycopg.errors.ForeignKeyViolation):
            # Such as a queue that is deleted while a job is submitted to it.
            response = _respond_to_punctual_error(
                errors.Conflict("An object that the request names was just deleted; read it again and retry.")
            )
        case OperationalError() | InterfaceError() | psycopg.OperationalError():
            logger.warning("Database did not answer: %s", error)
            response = _build_unavailable_response(
                "The database does not answer or is read-only; try again in a moment."
            )
        case _:
            logger.error("Unexpected error in a request", exc_info=error)
            response = _build_internal_error_response()
    return response


def build_invalid_response(invalid: Sequence[FieldError], status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> HttpResponse:
    detail = "; ".join(f"{error.field}: {error.message}" for error in invalid[:3])
    return Problem(status, detail, invalid[:MAX_REPORTED_ERRORS]).response()


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not request.path.startswith("/api/"):
        return defaults.page_not_found(request, exception)
    return Problem(
        HTTPStatus.NOT_FOUND, "There is nothing at this address; GET /api/v1/docs lists all operations."
    ).response()


def server_error(request: HttpRequest) -> HttpResponse:
    return _build_internal_error_response() if request.path.startswith("/api/") else defaults.server_error(request)


def _respond_to_punctual_error(error: errors.PunctualError) -> HttpResponse:
    status = next((STATUS_BY_ERROR[kind] for kind in type(error).__mro__ if kind in STATUS_BY_ERROR), None)
    if status is None:
        logger.error("Unexpected error in a request", exc_info=error)
        return _build_internal_error_response()
    if isinstance(error, errors.InvalidInput):
        return build_invalid_response([FieldError(error.field, error.message)], status)
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        return _build_unavailable_response(str(error))
    headers = {} if error.retry_after_seconds is None else {"Retry-After": str(error.retry_after_seconds)}
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return Problem(status, str(error), type=error.problem_type).response(headers)


def _respond_to_api_exception(error: exceptions.APIException) -> HttpResponse:
    headers = {}
    if isinstance(error, exceptions.NotAuthenticated | exceptions.AuthenticationFailed):
        headers["WWW-Authenticate"] = "Bearer"
    return Problem(error.status_code, str(error.detail)).response(headers)


def _build_unavailable_response(detail: str) -> HttpResponse:
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail).response(headers)


def _build_internal_error_response() -> HttpResponse:
    detail = "Internal error; the server's log has the details."
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail).response()


def _flatten(detail: object, path: str = "") -> Iterator[FieldError]:
    """Yield nested serializer errors with dotted paths, such as schedules.0.cron."""
    if isinstance(detail, Mapping):
        for key, value in detail.items():
            here = path if key == "non_field_errors" else f"{path}.{key}" if path else str(key)
            yield from _flatten(value, here)
    elif isinstance(detail, list | tuple):
        for index, value in enumerate(detail):
            nested = isinstance(value, Mapping | list | tuple)
            yield from _flatten(value, f"{path}.{index}" if nested else path)
    else:
        yield FieldError(_truncate(path, MAX_FIELD_LENGTH) or "body", _truncate(str(detail), MAX_MESSAGE_LENGTH))


def _truncate(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"
