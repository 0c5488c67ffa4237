"""Idempotency keys: the first request with a key is executed, and retries get its stored response.

A request claims its key before the view validates anything; until it is answered, another one with the same key gets
409. One transaction stores what the request creates and its response, and deletes the claim: only one of several equal
requests creates anything, and a crash leaves nothing but a claim that expires.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from uuid import UUID

from django.db import DatabaseError, InterfaceError, transaction
from django.db.models.functions import Now

from jobs.db import sql
from jobs.db.transactions import delete_in_batches, with_timeouts
from jobs.domain import limits
from jobs.domain.errors import IdempotencyKeyReused, InvalidInput, RequestInProgress
from jobs.models import IdempotencyClaim, StoredAnswer
from jobs.models.ids import new_id

IDEMPOTENCY_HEADER = "Idempotency-Key"
# A claim that has just expired may still belong to a slow request.
CLAIM_RETENTION = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class RequestKey:
    """What two requests must share to count as the same."""

    owner_id: int
    key: str
    route: str
    body_sha256: str


@dataclass(frozen=True, slots=True)
class IdempotentResponse:
    status: int
    body: str
    location: str = ""
    replayed: bool = False


def find_response(request: RequestKey) -> IdempotentResponse | None:
    """Return the stored response; IdempotencyKeyReused if it answers a different request."""
    stored = StoredAnswer.objects.filter(owner_id=request.owner_id, key=request.key, expires_at__gt=Now()).first()
    if stored is None:
        return None
    if (stored.route, stored.body_sha256) != (request.route, request.body_sha256):
        raise IdempotencyKeyReused(IDEMPOTENCY_HEADER)
    return IdempotentResponse(stored.status, stored.body, stored.location, replayed=True)


def respond_once(
    request: RequestKey, prepare: Callable[[], Callable[[], IdempotentResponse]], *, ttl: timedelta
) -> IdempotentResponse:
    """Execute the request and store its response in one transaction, or return the stored response.

    `prepare` validates the request outside a transaction and returns the function that executes it.
    """
    claim = _claim_key(request)
    try:
        # Only after claiming: the previous holder of the key has committed.
        if (stored := find_response(request)) is not None:
            _release_claim(claim)
            return stored
        execute = prepare()
        with transaction.atomic(), with_timeouts(statement_seconds=10):
            if not _release_claim(claim):
                raise RequestInProgress  # the claim expired, and another request has the key
            response = execute()
            _store_response(request, response, ttl)
    except BaseException:
        # Release the key at once; if that fails, the claim expires.
        with suppress(DatabaseError, InterfaceError):
            _release_claim(claim)
        raise
    return response


def _claim_key(request: RequestKey) -> UUID:
    claim = new_id()
    parameters = asdict(request) | {"id": claim, "seconds": limits.IDEMPOTENCY_CLAIM_SECONDS}
    # Asynchronous commit: losing a claim in a crash is harmless, as its request is lost too.
    with transaction.atomic(), with_timeouts(statement_seconds=5, durable=False):
        if not sql.execute("claim_idempotency_key", parameters):
            raise RequestInProgress
    return claim


def _release_claim(claim: UUID) -> bool:
    """Delete the claim. False: it expired, and another request has the key."""
    deleted, _ = IdempotencyClaim.objects.filter(id=claim).delete()
    return deleted > 0


def prune_responses() -> int:
    """Delete expired responses, and claims left by processes that died."""
    delete_in_batches(_prune_claims)
    return delete_in_batches(lambda limit: sql.execute("delete_expired_answers", {"limit": limit}))


def _prune_claims(limit: int) -> int:
    expired = IdempotencyClaim.objects.filter(expires_at__lt=Now() - CLAIM_RETENTION)
    deleted, _ = IdempotencyClaim.objects.filter(id__in=expired.values("id")[:limit]).delete()
    return deleted


def _store_response(request: RequestKey, response: IdempotentResponse, ttl: timedelta) -> None:
    if len(response.body.encode()) > limits.MAX_STORED_ANSWER_BYTES:
        raise InvalidInput(
            IDEMPOTENCY_HEADER,
            f"The response would exceed {limits.MAX_STORED_ANSWER_BYTES} bytes, the most that is stored for retries;"
            " split the request.",
        )
    # An expired response may not be pruned yet.
    StoredAnswer.objects.filter(owner_id=request.owner_id, key=request.key).delete()
    StoredAnswer.objects.create(
        **asdict(request),
        status=response.status,
        location=response.location,
        body=response.body,
        expires_at=Now() + ttl,
    )
