"""Punctual for Python programs: a client of a server's REST API, the one that the command line is made of.

Everything here is typed and blocks until the server has answered, for a bounded time.
"""

from __future__ import annotations

from cli.client import Client
from cli.errors import (
    ClientError,
    CliError,
    NotConfiguredError,
    ServerFailureError,
    UnauthorisedError,
    UnreachableError,
    UsageMistakeError,
    WaitTimeoutError,
)
from cli.records import Execution, Job

__all__ = [
    "CliError",
    "Client",
    "ClientError",
    "Execution",
    "Job",
    "NotConfiguredError",
    "ServerFailureError",
    "UnauthorisedError",
    "UnreachableError",
    "UsageMistakeError",
    "WaitTimeoutError",
]
