"""Requests that may be sent again: the first one is done, and every other gets its answer.

The answer is stored in the transaction that stores what the request created, under a lock that is tried and never
waited for. So one of any number of equal requests creates, whoever else asks meanwhile is told to come back, and a
crash leaves either both or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models.functions import Now

from jobs import conf, sql
from jobs.errors import InvalidInput, KeyUsedOtherwise, RequestInProgress
from jobs.models import StoredAnswer
from jobs.services.database import bounded, delete_in_batches

HEADER = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as far as two of them are the same one."""

    owner_id: int
    key: str
    route: str
    body_sha256: str


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: str
    location: str = ""
    replayed: bool = False


def find_answer(asked: Asked) -> Answer | None:
    """What was answered before; KeyUsedOtherwise if that was to another request."""
    stored = StoredAnswer.objects.filter(owner_id=asked.owner_id, key=asked.key, expires_at__gt=Now()).first()
    if stored is None:
        return None
    if (stored.route, stored.body_sha256) != (asked.route, asked.body_sha256):
        raise KeyUsedOtherwise(HEADER)
    return Answer(stored.status, stored.body, stored.location, replayed=True)


def answer_once(asked: Asked, create: Callable[[], Answer], *, kept: timedelta) -> Answer:
    """What `create` answers, committed with all that it did; or what was answered before, and nothing is done."""
    lock = f"punctual.answer.{asked.owner_id}.{asked.key}"
    with transaction.atomic(), bounded(statement_seconds=10, only_with=lock) as ours:
        if not ours:
            raise RequestInProgress
        # Read only now: whoever had the lock before has committed.
        if (before := find_answer(asked)) is not None:
            return before
        answer = create()
        _remember(asked, answer, kept)
    return answer


def forget_answers() -> int:
    """Deletes those that are over."""
    return delete_in_batches(lambda limit: sql.execute("forget_answers", {"limit": limit}))


def _remember(asked: Asked, answer: Answer, kept: timedelta) -> None:
    if len(answer.body.encode()) > conf.MAX_STORED_ANSWER_BYTES:
        raise InvalidInput(
            HEADER,
            f"The answer would have more than {conf.MAX_STORED_ANSWER_BYTES} bytes, which is more than is kept"
            " to be given again; ask for less at once.",
        )
    # One that is over may still be there.
    StoredAnswer.objects.filter(owner_id=asked.owner_id, key=asked.key).delete()
    StoredAnswer.objects.create(
        owner_id=asked.owner_id,
        key=asked.key,
        route=asked.route,
        body_sha256=asked.body_sha256,
        status=answer.status,
        location=answer.location,
        body=answer.body,
        expires_at=Now() + kept,
    )
