"""Punctual for Python programs: a typed client of the REST API, which the command line uses too.

Every call blocks for a bounded time and raises a `PunctualError`. Start with `Client`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from punctual_client.errors import (
    ApiError,
    NotConfiguredError,
    PunctualError,
    ServerError,
    UnauthorisedError,
    UnreachableError,
    UsageError,
    WaitTimeoutError,
)
from punctual_client.resources.executions import Execution
from punctual_client.resources.jobs import Job

if TYPE_CHECKING:
    from punctual_client.client import Client
else:

    def __getattr__(name: str) -> object:
        """Import `Client` on first use: it needs httpx, which takes longer to import than a short command runs."""
        if name == "Client":
            from punctual_client.client import Client  # noqa: PLC0415

            return Client
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ApiError",
    "Client",
    "Execution",
    "Job",
    "NotConfiguredError",
    "PunctualError",
    "ServerError",
    "UnauthorisedError",
    "UnreachableError",
    "UsageError",
    "WaitTimeoutError",
]
