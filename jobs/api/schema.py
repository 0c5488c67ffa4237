"""What drf-spectacular cannot see by itself: how a request is authenticated, and what input and output really are.

Apart from the authentication itself, which DRF loads before its own views.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import get_lib_doc_excludes

from jobs.api.authentication import SCHEME, BearerTokenAuthentication
from jobs.models import LADDER
from jobs.querysets.job_status import JobStatus
from jobs.services.schedules import KIND_FIELDS
from jobs.states import State

# Named in the settings, because several of them are called `status` or `scope` where they are shown.
EXECUTION_STATUSES = [state.value for state in State]
JOB_STATUSES = [status.value for status in JobStatus]
LOGIN_SCOPES = [scope.value for scope in LADDER]


class BearerTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = BearerTokenAuthentication
    name = "bearerToken"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {"type": "http", "scheme": SCHEME, "description": "From `POST /api/v1/login` or `POST /api/v1/tokens`."}


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


def silent_bases() -> list[type]:
    """Classes of which subclasses do not inherit their words: those are for whoever reads the code."""
    # Loaded late: views ask for this while they are being defined.
    from jobs.api.fields import StrictSerializer  # noqa: PLC0415
    from jobs.api.job_edit_input import WithoutDefaults  # noqa: PLC0415
    from jobs.api.limiting import Limited  # noqa: PLC0415
    from jobs.api.worker_input import HoldInput  # noqa: PLC0415

    others = get_lib_doc_excludes()  # type: ignore[no-untyped-call]
    return [*others, Limited, StrictSerializer, WithoutDefaults, HoldInput]


def refuse_unknown(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """drf-spectacular's hook: a field that is not known is refused, wherever it stands in a body."""
    for name, schema in result["components"]["schemas"].items():
        if name.endswith("Input"):
            schema["additionalProperties"] = False
    return result


def show_schedules(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """drf-spectacular's hook: a schedule is shown in the word in which it was written."""
    schemas = result["components"]["schemas"]
    written = schemas["ScheduleInput"]["properties"]
    schemas["ScheduleOutput"]["properties"] |= {name: written[name] for name in KIND_FIELDS.values()}
    return result


__all__ = ["BearerTokenScheme"]
