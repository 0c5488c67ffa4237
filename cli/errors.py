"""Every failure that the command line reports: one sentence and one exit code each.

A failure that is not in this tree is a bug; `__main__` is the only place that prints and exits.
"""

from __future__ import annotations

from typing import ClassVar


class CliError(Exception):
    """A sentence for the person at the terminal."""

    exit_code: ClassVar[int] = 1

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class UsageMistakeError(CliError):
    """The command line itself is wrong."""

    exit_code = 2


class NotConfiguredError(CliError):
    """It is not known which server to talk to, or with which token."""

    exit_code = 3


class ProfilesNotKeptError(CliError):
    """The file of profiles could not be written."""


class ClientError(CliError):
    """The server refused a request; `field` names what it refused, where the server said so."""

    exit_code = 4

    def __init__(self, sentence: str, *, field: str | None = None, status: int | None = None) -> None:
        super().__init__(sentence)
        self.field = field
        self.status = status

    def __str__(self) -> str:
        return f"{self.field}: {self.sentence}" if self.field else self.sentence


class UnreachableError(ClientError):
    """No answer came."""

    exit_code = 3


class UnauthorisedError(ClientError):
    """The server does not accept the token, or not for this; what its owner may not do is a `ClientError`."""

    exit_code = 3


class ServerFailureError(ClientError):
    """The server answered, but with a failure of its own or with something that is not its protocol."""

    exit_code = 5


class WaitTimeoutError(CliError):
    """The execution did not end within the time given for waiting; it goes on."""

    exit_code = 124
