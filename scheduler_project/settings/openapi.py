"""Settings of drf-spectacular, and the overview in the schema."""

from __future__ import annotations

OVERVIEW = """
Punctual runs programs on schedules: once per instant, on time, in a sandbox.

**Tokens.** Send `Authorization: Bearer …` with a token from `POST /api/v1/login`, from `POST /api/v1/tokens` or from
the [admin](/admin/); a browser that has logged in there needs none. Every operation lists the scope it needs:
`read`, `submit`, `operate` and `admin` each include those before them, `worker` is separate. Objects of other users
answer 404. [This page](docs) and [the schema](schema) are public.

**Errors** are `application/problem+json` (RFC 9457): `detail` is a sentence, `errors` names the fields by position,
such as `schedules.0.cron`. Unknown fields are refused.

**Lists** answer `{"results": […], "next": …}`, newest first; `next` is the path of the next page, null on the last. A
page may be short and still have a `next`.

**Idempotency.** A POST with an `Idempotency-Key` can be sent again when its response was lost: it is processed once and
returns the first response. `ETag` with `If-Match` prevents lost updates.

**Limits.** `RateLimit-*` headers report the remaining requests per minute; 429 and 503 have a `Retry-After`.

Times are ISO 8601, returned in UTC. `docs/api.md` of the sources has more.
"""

SPECTACULAR_SETTINGS = {
    "TITLE": "Punctual",
    "DESCRIPTION": OVERVIEW.strip(),
    "VERSION": "1",
    "LICENSE": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    # No external validator.
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "defaultModelsExpandDepth": 0, "validatorUrl": None},
    "SCHEMA_PATH_PREFIX": "/api/v1",
    # Keep the order of the routes, which follows the life of a job.
    "SORT_OPERATIONS": False,
    "SORT_OPERATION_PARAMETERS": False,
    # The values are self-explanatory.
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "GET_LIB_DOC_EXCLUDES": "jobs.api.openapi.hooks.list_undocumented_bases",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "jobs.api.openapi.hooks.collapse_any_value",
        "jobs.api.openapi.hooks.forbid_unknown_fields",
        "jobs.api.openapi.hooks.add_schedule_kind_fields",
        "jobs.api.openapi.operations_hook.describe_operations",
        "jobs.api.openapi.hooks.add_examples",
        "jobs.api.openapi.problems_hook.add_problems",
    ],
    # These enums share the field name `status` or `scope`.
    "ENUM_NAME_OVERRIDES": {
        "ExecutionStatusEnum": "jobs.api.openapi.hooks.EXECUTION_STATUSES",
        "JobStatusEnum": "jobs.api.openapi.hooks.JOB_STATUSES",
        "WorkerStatusEnum": "jobs.models.worker.WorkerStatus",
        "TokenScopeEnum": "jobs.models.token.TokenScope",
        "LoginScopeEnum": "jobs.api.openapi.hooks.LOGIN_SCOPES",
    },
}
