"""Dead letters: executions that failed for good, until a user redrives or dismisses them.

Invariant: a dead letter is resolved once, under its row's lock.
"""

from __future__ import annotations

import json
from uuid import UUID

from django.db import transaction

from jobs.audit.log import record_change
from jobs.db import sql
from jobs.db.locks import lock_execution
from jobs.db.transactions import with_timeouts
from jobs.domain.errors import Conflict
from jobs.execution import status_cache
from jobs.models import DeadLetter, Execution


def dismiss_dead_letter(execution_id: UUID, *, by: str) -> None:
    """Take the execution off the dead-letter list. Idempotent."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        execution = lock_execution(execution_id)
        if execution.dead_letter == DeadLetter.OPEN:
            resolve_dead_letter(execution, DeadLetter.DISMISSED, event="execution.dismissed", by=by)
        elif execution.dead_letter != DeadLetter.DISMISSED:
            raise Conflict("The execution was redriven, or never was a dead letter; there is nothing to dismiss.")


def resolve_dead_letter(execution: Execution, becomes: DeadLetter, *, event: str, by: str, **detail: str) -> None:
    """Record the resolution as an event of the execution and in the audit log, under the same name."""
    sql.execute(
        "resolve_dead_letter",
        {
            "execution_id": execution.id,
            "becomes": becomes,
            "name": event,
            "detail": json.dumps({"by": by} | detail),
        },
    )
    status_cache.notify_change(execution.id)
    before = {} if execution.dead_letter is None else {"dead_letter": execution.dead_letter}
    after = ({"dead_letter": becomes} if before else {}) | detail
    record_change(
        event, execution, owner_id=execution.job.owner_id, name=execution.job.name, before=before, after=after
    )
