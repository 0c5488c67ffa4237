"""What drf-spectacular cannot see by itself; apart from the authentication, which DRF loads before its own views."""

from __future__ import annotations

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


__all__ = ["BearerTokenScheme"]
