"""Every error as RFC 9457 problem+json; the one place where Punctual's errors become status codes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus

import psycopg
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import IntegrityError, InterfaceError, InternalError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.views import defaults
from rest_framework import exceptions

from jobs import errors
from jobs.services.database import abandon_if_closed_to_us

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 2
MAX_ERRORS_TOLD = 50
# Some repeat what was sent, which may be a megabyte.
MAX_MESSAGE_LENGTH = 1000
MAX_FIELD_LENGTH = 300

STATUSES: dict[type[errors.PunctualError], HTTPStatus] = {
    errors.InvalidInput: HTTPStatus.BAD_REQUEST,
    errors.KeyUsedOtherwise: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NotPermitted: HTTPStatus.FORBIDDEN,
    errors.TokenUnknown: HTTPStatus.UNAUTHORIZED,
    errors.TokenExpired: HTTPStatus.UNAUTHORIZED,
    errors.TokenRevoked: HTTPStatus.UNAUTHORIZED,
    errors.LoginRefused: HTTPStatus.UNAUTHORIZED,
    errors.TooManyLogins: HTTPStatus.TOO_MANY_REQUESTS,
    errors.LoginsUncounted: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ScopeTooSmall: HTTPStatus.FORBIDDEN,
    errors.OwnersOnly: HTTPStatus.FORBIDDEN,
    errors.StaffOnly: HTTPStatus.FORBIDDEN,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.Changed: HTTPStatus.PRECONDITION_FAILED,
    errors.ArtifactHashMismatch: HTTPStatus.CONFLICT,
    errors.TooManyRequests: HTTPStatus.TOO_MANY_REQUESTS,
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
    """DRF's exception handler: everything that a view raises ends here, expected or not."""
    match error:
        case errors.PunctualError():
            response = _of_ours(error)
        case exceptions.ValidationError():
            response = invalid(list(_flatten(error.detail)))
        case exceptions.APIException():
            response = _of_framework(error)
        # What was there a moment ago: another request has deleted it since.
        case Http404() | ObjectDoesNotExist():
            response = _of_ours(errors.NotFound())
        case PermissionDenied():
            response = Problem(HTTPStatus.FORBIDDEN, str(error) or "You may not do this.").response()
        case RequestDataTooBig():
            detail = "The request body is too large; upload programs as artifacts."
            response = Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail).response()
        case SuspiciousOperation():
            response = Problem(HTTPStatus.BAD_REQUEST, "The request is malformed.").response()
        case IntegrityError() if isinstance(error.__cause__, psycopg.errors.ForeignKeyViolation):
            # Such as a queue that staff deletes while somebody submits a job to it.
            response = _of_ours(
                errors.Conflict("Something that the request names was just deleted; look, and try again.")
            )
        case OperationalError() | InterfaceError() | psycopg.OperationalError():
            logger.warning("The database did not answer: %s", error)
            response = _try_again("The database does not answer; try again in a moment.")
        case InternalError() if abandon_if_closed_to_us(error):
            logger.warning("The database takes nothing: %s", error)
            response = _try_again("The database takes no changes at the moment; try again in a moment.")
        case _:
            logger.error("A request failed unexpectedly", exc_info=error)
            response = _unexpected()
    return response


def invalid(found: Sequence[FieldError], status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> HttpResponse:
    detail = "; ".join(f"{error.field}: {error.message}" for error in found[:3])
    return Problem(status, detail, found[:MAX_ERRORS_TOLD]).response()


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not request.path.startswith("/api/"):
        return defaults.page_not_found(request, exception)
    return Problem(
        HTTPStatus.NOT_FOUND, "There is nothing at this address; GET /api/v1/docs lists what there is."
    ).response()


def server_error(request: HttpRequest) -> HttpResponse:
    return _unexpected() if request.path.startswith("/api/") else defaults.server_error(request)


def _of_ours(error: errors.PunctualError) -> HttpResponse:
    status = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), None)
    if status is None:
        logger.error("A request failed unexpectedly", exc_info=error)
        return _unexpected()
    if isinstance(error, errors.InvalidInput):
        return invalid([FieldError(error.field, error.message)], status)
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        return _try_again(str(error))
    headers = {} if error.retry_after_seconds is None else {"Retry-After": str(error.retry_after_seconds)}
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return Problem(status, str(error), type=error.problem_type).response(headers)


def _of_framework(error: exceptions.APIException) -> HttpResponse:
    headers = {}
    if isinstance(error, exceptions.NotAuthenticated | exceptions.AuthenticationFailed):
        headers["WWW-Authenticate"] = "Bearer"
    return Problem(error.status_code, str(error.detail)).response(headers)


def _try_again(detail: str) -> HttpResponse:
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail).response(headers)


def _unexpected() -> HttpResponse:
    detail = "Something went wrong on our side; the server's log says what."
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail).response()


def _flatten(detail: object, path: str = "") -> Iterator[FieldError]:
    """Nested serializer errors as dotted paths: schedules.0.cron."""
    if isinstance(detail, Mapping):
        for key, value in detail.items():
            here = path if key == "non_field_errors" else f"{path}.{key}" if path else str(key)
            yield from _flatten(value, here)
    elif isinstance(detail, list | tuple):
        for index, value in enumerate(detail):
            nested = isinstance(value, Mapping | list | tuple)
            yield from _flatten(value, f"{path}.{index}" if nested else path)
    else:
        yield FieldError(_short(path, MAX_FIELD_LENGTH) or "body", _short(str(detail), MAX_MESSAGE_LENGTH))


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"
