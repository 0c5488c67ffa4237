"""Tells workers what was placed on them.

A message is a hint; the claim decides. What was placed and not taken is published again, by whichever beat looks first,
so neither a lost message nor a beat that died between commit and publication loses anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from jobs import conf, sql
from jobs.messages import RunMessage
from jobs.services.database import bounded


@dataclass(frozen=True, slots=True)
class Publication:
    execution_id: UUID
    attempt: int
    worker_id: UUID
    job_name: str

    @property
    def message(self) -> RunMessage:
        return RunMessage(self.execution_id, self.attempt)


def publish_queued(send: Callable[[Sequence[Publication]], None], *, limit: int = conf.PUBLISH_BATCH_MESSAGES) -> int:
    """One batch: taken in a transaction of its own, then sent. What fails to be sent is taken again later."""
    with transaction.atomic(), bounded(statement_seconds=10):
        batch = sql.fetch(
            "take_unpublished", {"limit": limit, "republish_seconds": conf.REPUBLISH_SECONDS}, Publication
        )
    if batch:
        send(batch)
    return len(batch)
