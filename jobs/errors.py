"""Every error that Punctual raises on purpose; the API maps this tree to problem+json in one place.

The docstring of an error is its default message: it says what happened and what to do.
"""

from __future__ import annotations

from typing import ClassVar


class PunctualError(Exception):
    """Something went wrong in Punctual."""

    # What a program tells it by in problem+json; the status alone says enough of most.
    problem_type: ClassVar[str] = "about:blank"
    # When the same request may do better; None: not by waiting.
    retry_after_seconds: int | None = None

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class InvalidInput(PunctualError):
    """The input is not valid."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message


class NotPermitted(InvalidInput):
    """The input asks for something that its sender may not have."""


class KeyUsedOtherwise(InvalidInput):
    """The key was sent with another request before; choose a new one for each request that is not the same."""

    def __init__(self, field: str) -> None:
        super().__init__(field, (type(self).__doc__ or "").strip())


class TokenUnknown(PunctualError):
    """The API token is unknown; send a valid one."""


class TokenExpired(PunctualError):
    """The API token has expired; run punctual login for a new one."""

    problem_type = "urn:punctual:token-expired"


class TokenRevoked(PunctualError):
    """The API token was revoked; run punctual login for a new one."""

    problem_type = "urn:punctual:token-revoked"


class LoginRefused(PunctualError):
    """The user name or the password is wrong."""

    problem_type = "urn:punctual:login-refused"


class TooManyLogins(PunctualError):
    """Too many tries to log in have failed; wait a minute."""

    problem_type = "urn:punctual:too-many-logins"

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__(f"Too many tries to log in have failed; wait {retry_after_seconds} seconds.")
        self.retry_after_seconds = retry_after_seconds


class LoginsUncounted(PunctualError):
    """Nobody can log in while Redis does not answer, since tries are counted there; try again in a moment."""


class ScopeTooSmall(PunctualError):
    """The API token may not do this."""

    problem_type = "urn:punctual:scope"


class OwnersOnly(PunctualError):
    """Only the owner of the job, or staff, may do this; its team may look at it, run it, pause it and resume it."""

    problem_type = "urn:punctual:owners-only"


class StaffOnly(PunctualError):
    """Only staff may do this."""

    problem_type = "urn:punctual:staff-only"


class NotFound(PunctualError):
    """There is no such thing, or it belongs to somebody else."""


class Conflict(PunctualError):
    """The request does not fit the present state; read it again and retry."""


class RequestInProgress(Conflict):
    """A request with this key is being answered at the moment; send it again in a moment."""

    problem_type = "urn:punctual:request-in-progress"
    retry_after_seconds = 1


class Changed(PunctualError):
    """Somebody has changed it since you read it: read it again, and send your change with the new ETag."""


class TooManyRequests(PunctualError):
    """More requests than are allowed in a minute; wait a moment, or ask for a larger quota."""

    def __init__(self, limit: int, retry_seconds: int) -> None:
        super().__init__(
            f"You may make {limit} requests a minute, and have; try again in {retry_seconds} s, or ask for a larger"
            " quota."
        )
        self.retry_after_seconds = retry_seconds


class IllegalTransition(Conflict):
    """The execution is in a state that this move does not start from."""


class StaleAttempt(Conflict):
    """The attempt is no longer this worker's: it was given away, cancelled or ended; stop it and write nothing more."""

    problem_type = "urn:punctual:stale-attempt"


class WorkerLeaseLost(PunctualError):
    """The worker's lease ended or a newer incarnation registered; register again."""

    problem_type = "urn:punctual:worker-lease-lost"


class WorkerNameTaken(Conflict):
    """Another worker of this name is alive; give this one a name of its own."""

    problem_type = "urn:punctual:worker-name-taken"


class StorageUnavailable(PunctualError):
    """The object store does not answer; try again in a moment."""


class ArchivedLogUnreadable(StorageUnavailable):
    """The archived log could not be read whole; try again, and if it stays so, see that its object is undamaged."""


class ArtifactNotUploaded(Conflict):
    """The object store does not hold the artifact's bytes yet; upload them to the given URL first."""


class OutputNotUploaded(Conflict):
    """The object store does not hold all outputs that were named; upload them to the given URLs first."""


class SecretUnreadable(PunctualError):
    """The secret cannot be opened; set its value anew."""


class SecretsNotKept(Conflict):
    """No secrets can be kept here yet; set PUNCTUAL_SECRETS_KEYS for every process of the control plane."""


class QuotaExceeded(PunctualError):
    """The owner's storage quota is used up; delete what is no longer needed, or ask for a larger one."""

    problem_type = "urn:punctual:quota"


class JobQuotaExceeded(PunctualError):
    """The owner has as many jobs as they may; delete what is no longer needed, or ask for a larger quota."""

    problem_type = "urn:punctual:quota"


class ArtifactHashMismatch(PunctualError):
    """The stored bytes are not the ones that were announced; upload the artifact again."""
