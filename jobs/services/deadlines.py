"""Ends what has waited past its deadline; what runs is ended by its worker, which got no more than the rest."""

from __future__ import annotations

from django.db import transaction

from jobs import conf
from jobs.services import endings, transitions
from jobs.services.database import bounded


def expire_overdue(*, limit: int = conf.PLACE_BATCH_EXECUTIONS) -> int:
    """One batch; returns how many ended. Any number may do it at once."""
    with transaction.atomic(), bounded(statement_seconds=10):
        expired = transitions.expire_overdue(limit)
        endings.settle_endings(expired)
    return len(expired)
