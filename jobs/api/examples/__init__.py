"""Examples for the schema, by the name of what they are an example of."""

from __future__ import annotations

from jobs.api.examples.outputs import OUTPUTS as _OUTPUTS
from jobs.api.examples.requests import REQUESTS as _REQUESTS
from jobs.api.examples.worker_protocol import WORKER_OUTPUTS, WORKER_REQUESTS

REQUESTS = _REQUESTS | WORKER_REQUESTS
OUTPUTS = _OUTPUTS | WORKER_OUTPUTS
