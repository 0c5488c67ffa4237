"""Reclaim the executions of a worker that is gone, page by page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import UUID

from django.db import transaction

from jobs.db.row_isolation import SkippedRows, apply_isolated
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.states import Reason
from jobs.execution import completion, transitions

_set_aside = SkippedRows()


def reclaim_executions(
    worker_id: UUID, keep_incarnation: int, *, reason: Reason = Reason.LOST, deadline: float | None = None
) -> int:
    """Reclaim what incarnations before `keep_incarnation` hold; return how many executions moved.

    Each page is a transaction. Stops at `deadline`, by the monotonic clock; the reaper continues with the rest.
    """
    deadline = time.monotonic() + limits.FINISH_PASS_SECONDS if deadline is None else deadline

    def reclaim(only: Sequence[UUID]) -> int:
        lost = transitions.lose_executions(
            {worker_id: keep_incarnation},
            reason=reason,
            limit=limits.FINISH_BATCH_EXECUTIONS,
            only=only,
            excluding=_set_aside.ids(),
        )
        completion.on_finished(lost)
        return len(lost)

    moved = 0
    while True:
        with transaction.atomic(), with_timeouts(statement_seconds=5):
            page = transitions.lock_executions_to_lose(
                {worker_id: keep_incarnation}, limit=limits.FINISH_BATCH_EXECUTIONS, excluding=_set_aside.ids()
            )
        moved += sum(apply_isolated(page, reclaim, failed=_set_aside.add, until=deadline))
        if len(page) < limits.FINISH_BATCH_EXECUTIONS or time.monotonic() >= deadline:
            return moved
