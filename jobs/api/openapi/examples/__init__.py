"""Examples for the OpenAPI schema, by component name."""

from __future__ import annotations

from jobs.api.openapi.examples.outputs import OUTPUTS as _OUTPUTS
from jobs.api.openapi.examples.requests import REQUESTS as _REQUESTS
from jobs.api.openapi.examples.worker_protocol import WORKER_OUTPUTS, WORKER_REQUESTS

REQUESTS = _REQUESTS | WORKER_REQUESTS
OUTPUTS = _OUTPUTS | WORKER_OUTPUTS
