"""The errors of the client and the command line: one message and one exit code each.

Any other exception is a bug. Only `punctual_cli.__main__` prints errors and exits.
"""

from __future__ import annotations

import os
from typing import ClassVar

# The command that hints name. The wrapper of a checkout, which can also run the stack, sets the variable.
PROGRAM = os.environ.get("PUNCTUAL_PROGRAM", "punctual")
IN_CHECKOUT = PROGRAM != "punctual"


class PunctualError(Exception):
    """A failure with a message for the user."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UsageError(PunctualError):
    """The arguments are wrong."""

    exit_code = 2


class NotConfiguredError(PunctualError):
    """No server or no token is configured."""

    exit_code = 3


class ProfileWriteError(PunctualError):
    """The profiles file could not be written."""


class ApiError(PunctualError):
    """The server refused a request; `field` is the field it refused, if it named one."""

    exit_code = 4

    def __init__(self, message: str, *, field: str | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.status = status

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class UnreachableError(ApiError):
    """The server did not answer."""

    exit_code = 3


class UnauthorisedError(ApiError):
    """The server refuses the token or its scope; a lack of rights of the user is an `ApiError`."""

    exit_code = 3


class ServerError(ApiError):
    """The server failed, or its answer does not follow the protocol."""

    exit_code = 5


class WaitTimeoutError(PunctualError):
    """The execution did not end within the time limit for waiting; it keeps running."""

    exit_code = 124
