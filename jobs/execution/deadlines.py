"""Times out executions that waited past their deadline; a worker times out its own runs."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db import transaction

from jobs.db.row_isolation import SkippedRows, apply_isolated
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.execution import completion, transitions

_set_aside = SkippedRows()


def expire_overdue(*, limit: int = limits.FINISH_BATCH_EXECUTIONS) -> int:
    """Time out one batch; return how many. Any number of beats may do so at once."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        overdue = transitions.find_overdue(limit, excluding=_set_aside.ids())
    return sum(apply_isolated(overdue, _expire_executions, failed=_set_aside.add))


def _expire_executions(execution_ids: Sequence[UUID]) -> int:
    expired = transitions.expire_overdue(execution_ids)
    completion.on_finished(expired)
    return len(expired)
