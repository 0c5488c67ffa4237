"""How the API's schema is made, and what it says of the API as a whole."""

from __future__ import annotations

OVERVIEW = """
Programs, when they shall run, and what became of it: Punctual runs them once, on time, in a sandbox.

**Tokens.** Send `Authorization: Bearer …` with a token from `POST /api/v1/login`, from `POST /api/v1/tokens` or from
the [admin](/admin/); a browser that has logged in there needs none. Every operation says which scope it needs: `read`,
`submit`, `operate` and `admin` each include those before them, `worker` stands for itself. What belongs to somebody
else is not found. [This page](docs) and [the schema](schema) are open to everybody.

**Errors** are `application/problem+json` (RFC 9457): `detail` is a sentence, `errors` names the fields by their place,
such as `schedules.0.cron`. Fields that are not known are refused.

**Lists** answer `{"results": […], "next": …}`, newest first; `next` is the path of the next page, null on the last. A
page may be short and still have a `next`.

**Repeating.** A POST that takes an `Idempotency-Key` may be sent again when its answer was lost: it is done once, and
answered as it was the first time. `ETag` with `If-Match` keeps two editors from undoing each other's work.

**Limits.** `RateLimit-*` headers tell what is left of your requests a minute; 429 and 503 say in `Retry-After` when to
come back.

Times are ISO 8601, answered in UTC. More is in `docs/api.md` of the sources.
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
    # It would ask a server of its makers whether the schema is valid.
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "defaultModelsExpandDepth": 0, "validatorUrl": None},
    "SCHEMA_PATH_PREFIX": "/api/v1",
    # In the order of the addresses, which is that of a job's life; the alphabet's is not.
    "SORT_OPERATIONS": False,
    "SORT_OPERATION_PARAMETERS": False,
    # Choices are called what they are written like.
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "GET_LIB_DOC_EXCLUDES": "jobs.api.schema.silent_bases",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "jobs.api.schema.say_anything",
        "jobs.api.schema.refuse_unknown",
        "jobs.api.schema.show_schedules",
        "jobs.api.schema_operations.describe_operations",
        "jobs.api.schema_examples.add_examples",
        "jobs.api.schema_problems.add_problems",
    ],
    # All of these are called `status` where they are shown.
    "ENUM_NAME_OVERRIDES": {
        "ExecutionStatusEnum": "jobs.api.schema.EXECUTION_STATUSES",
        "JobStatusEnum": "jobs.api.schema.JOB_STATUSES",
        "WorkerStatusEnum": "jobs.models.worker.WorkerStatus",
        "TokenScopeEnum": "jobs.models.token.TokenScope",
        "LoginScopeEnum": "jobs.api.schema.LOGIN_SCOPES",
    },
}
