"""drf-spectacular hooks and extensions for what it cannot infer: authentication, real types, examples."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import get_lib_doc_excludes

from jobs.api.framework.authentication import SCHEME, BearerTokenAuthentication
from jobs.api.openapi.examples import OUTPUTS, REQUESTS
from jobs.definitions.job_status import JobStatus
from jobs.domain.states import State
from jobs.models import SCOPE_LADDER
from jobs.scheduling.schedules import FIELD_OF_KIND

JSON_CONTENT_TYPE = "application/json"
# Referenced by the settings, because several fields are called `status` or `scope`.
EXECUTION_STATUSES = [state.value for state in State]
JOB_STATUSES = [status.value for status in JobStatus]
LOGIN_SCOPES = [scope.value for scope in SCOPE_LADDER]


class BearerTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = BearerTokenAuthentication
    name = "bearerToken"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": SCHEME,
            "description": "A token from `POST /api/v1/login` or `POST /api/v1/tokens`.",
        }


def collapse_any_value(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Collapse "any value or null" to "any value", for nullable JSON fields."""
    _collapse_any_value(result)
    return result


def _collapse_any_value(part: object) -> None:
    if isinstance(part, dict):
        if {} in part.get("oneOf", []):
            del part["oneOf"]
        for each in part.values():
            _collapse_any_value(each)
    elif isinstance(part, list):
        for each in part:
            _collapse_any_value(each)


def list_undocumented_bases() -> list[type]:
    """Return base classes whose docstrings subclasses must not inherit as descriptions."""
    # Imported late: views call this while they are being defined.
    from jobs.api.framework.fast_serializer import FastSerializerMixin  # noqa: PLC0415
    from jobs.api.framework.fields import PartialInput, StrictSerializer  # noqa: PLC0415
    from jobs.api.framework.query_params import RangeValidationMixin  # noqa: PLC0415
    from jobs.api.framework.throttling import RateLimitedMixin  # noqa: PLC0415
    from jobs.api.worker_protocol.inputs import FenceInput  # noqa: PLC0415

    library_bases = get_lib_doc_excludes()  # type: ignore[no-untyped-call]
    own_bases = [
        FastSerializerMixin,
        FenceInput,
        PartialInput,
        RangeValidationMixin,
        RateLimitedMixin,
        StrictSerializer,
    ]
    return [*library_bases, *own_bases]


def forbid_unknown_fields(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Declare that inputs reject unknown fields, at any depth."""
    for name, schema in result["components"]["schemas"].items():
        if name.endswith("Input"):
            schema["additionalProperties"] = False
    return result


def add_schedule_kind_fields(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Add the kind fields (cron, at, …) to ScheduleOutput, which shows the one it was submitted with."""
    schemas = result["components"]["schemas"]
    input_properties = schemas["ScheduleInput"]["properties"]
    schemas["ScheduleOutput"]["properties"] |= {name: input_properties[name] for name in FIELD_OF_KIND.values()}
    return result


def add_examples(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Add an example to every JSON request and response body."""
    schemas = result["components"]["schemas"]
    for operations in result["paths"].values():
        for operation in operations.values():
            body = operation.get("requestBody", {}).get("content", {}).get(JSON_CONTENT_TYPE)
            if body is not None and (named := REQUESTS.get(_get_schema_name(body["schema"]))) is not None:
                body["examples"] = {name: {"value": value} for name, value in named.items()}
            for response in operation["responses"].values():
                body = response.get("content", {}).get(JSON_CONTENT_TYPE)
                example = body and _find_output_example(_get_schema_name(body["schema"]), schemas)
                if example is not None:
                    body["example"] = example
    return result


def _find_output_example(name: str, schemas: dict[str, Any]) -> dict[str, Any] | None:
    if name in OUTPUTS:
        return OUTPUTS[name]
    properties = schemas.get(name, {}).get("properties", {})
    row = OUTPUTS.get(_get_schema_name(properties.get("results", {}).get("items", {})))
    if row is None:
        return None
    return {"results": [row], "next": None} if "next" in properties else {"results": [row]}


def _get_schema_name(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]
