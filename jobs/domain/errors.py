"""The tree of errors that Punctual raises on purpose; the API maps it to problem+json in one place.

The docstring of an error is its default message: what happened and what to do.
"""

from __future__ import annotations

from typing import ClassVar


class PunctualError(Exception):
    """Something went wrong in Punctual."""

    # `type` in problem+json, where the status alone is ambiguous.
    problem_type: ClassVar[str] = "about:blank"
    # When a retry may succeed; None: waiting does not help.
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
    """The input asks for something that the caller may not use."""


class IdempotencyKeyReused(InvalidInput):
    """The key was used for a different request; choose a new key for each new request."""

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


class TooManyLoginAttempts(PunctualError):
    """Too many login attempts have failed; wait a minute."""

    problem_type = "urn:punctual:too-many-logins"

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__(f"Too many login attempts have failed; wait {retry_after_seconds} seconds.")
        self.retry_after_seconds = retry_after_seconds


class LoginCounterUnavailable(PunctualError):
    """Login is unavailable because Redis, which counts failed attempts, does not answer; try again in a moment."""


class InsufficientScope(PunctualError):
    """The API token may not do this."""

    problem_type = "urn:punctual:scope"


class OwnersOnly(PunctualError):
    """Only the owner of the job, or staff, may do this; its team may read, run, pause and resume it."""

    problem_type = "urn:punctual:owners-only"


class StaffOnly(PunctualError):
    """Only staff may do this."""

    problem_type = "urn:punctual:staff-only"


class NotFound(PunctualError):
    """There is no such object, or it belongs to another user."""


class Conflict(PunctualError):
    """The request conflicts with the current state; read it again and retry."""


class RequestInProgress(Conflict):
    """A request with this key is still in progress; retry in a moment."""

    problem_type = "urn:punctual:request-in-progress"
    retry_after_seconds = 1


class PreconditionFailed(PunctualError):
    """It has changed since you read it; read it again and send your change with the new ETag."""


class TooManyRequests(PunctualError):
    """Too many requests in one minute; wait a moment, or ask for a larger quota."""

    def __init__(self, limit: int, retry_seconds: int) -> None:
        super().__init__(
            f"The limit of {limit} requests a minute is reached; try again in {retry_seconds} s, or ask for a larger"
            " quota."
        )
        self.retry_after_seconds = retry_seconds


class TooManyRegistrations(PunctualError):
    """The workers of a token register too often."""

    def __init__(self, limit: int, retry_seconds: int) -> None:
        super().__init__(
            f"The limit of {limit} registrations a minute for the workers of this token is reached; try again in"
            f" {retry_seconds} s, and check why they restart so often."
        )
        self.retry_after_seconds = retry_seconds


class TooManyDownloads(PunctualError):
    """Too many logs are being downloaded at once; finish or close some of the downloads, and try again."""

    retry_after_seconds = 5


class TooManyExpensiveReads(PunctualError):
    """Another audit of yours is still running; wait for it, then try again."""

    retry_after_seconds = 5


class ExpensiveReadsBusy(PunctualError):
    """The server is busy with other users' audits; try again in a moment."""


class BacklogFull(Conflict):
    """Too many manually started executions are unfinished; wait until some have finished."""

    problem_type = "urn:punctual:quota"
    retry_after_seconds = 60


class IllegalTransition(Conflict):
    """The execution's state does not allow this transition."""


class StaleAttempt(Conflict):
    """This worker no longer owns the attempt (reassigned, cancelled or finished); stop it and write nothing more."""

    problem_type = "urn:punctual:stale-attempt"


class WorkerLeaseLost(PunctualError):
    """The worker's lease expired or a newer incarnation registered; register again."""

    problem_type = "urn:punctual:worker-lease-lost"


class WorkerNameTaken(Conflict):
    """Another live worker has this name; choose a different name."""

    problem_type = "urn:punctual:worker-name-taken"


class WorkerLimitReached(WorkerNameTaken):
    """The token has reached its limit of workers; stop one, or use another token."""

    problem_type = "urn:punctual:worker-limit"


class StorageUnavailable(PunctualError):
    """The object store does not answer; try again in a moment."""


class ArchivedLogUnreadable(StorageUnavailable):
    """The archived log could not be read completely; try again, and if it keeps failing, check its object."""


class ArtifactNotUploaded(Conflict):
    """The object store does not hold the artifact's bytes yet; upload them to the given URL first."""


class OutputNotUploaded(Conflict):
    """The object store does not hold all announced outputs yet; upload them to the given URLs first."""


class SecretUnreadable(PunctualError):
    """The secret cannot be decrypted; set its value again."""


class SecretsKeysNotConfigured(Conflict):
    """No secrets can be stored here yet; set PUNCTUAL_SECRETS_KEYS for every process of the control plane."""


class QuotaExceeded(PunctualError):
    """The owner's storage quota is used up; delete files that are no longer needed, or ask for a larger quota."""

    problem_type = "urn:punctual:quota"


class JobQuotaExceeded(PunctualError):
    """The owner has reached their limit of jobs; delete jobs that are no longer needed, or ask for a larger quota."""

    problem_type = "urn:punctual:quota"


class ArtifactHashMismatch(PunctualError):
    """The stored bytes do not match the announced hash; upload the artifact again."""
