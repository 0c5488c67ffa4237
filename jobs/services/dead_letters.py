"""Executions that failed for good, until somebody has looked after them.

Invariant: a dead letter is settled once, redriven or dismissed, under its row's lock.
"""

from __future__ import annotations

import json
from uuid import UUID

from django.db import transaction

from jobs import sql
from jobs.errors import Conflict, NotFound
from jobs.models import DeadLetter, Execution
from jobs.services import status_cache
from jobs.services.audit_trail import record
from jobs.services.database import bounded


def dismiss_dead_letter(execution_id: UUID, *, by: str) -> None:
    """Takes it off the list; doing it again changes nothing."""
    with transaction.atomic(), bounded(statement_seconds=5):
        execution = lock_execution(execution_id)
        if execution.dead_letter == DeadLetter.OPEN:
            settle(execution, DeadLetter.DISMISSED, event="execution.dismissed", by=by)
        elif execution.dead_letter != DeadLetter.DISMISSED:
            raise Conflict("The execution was redriven, or never was a dead letter; there is nothing to dismiss.")


def lock_execution(execution_id: UUID) -> Execution:
    """Ours until the transaction ends. Before any job: whoever ends executions takes the two in this order."""
    rows = Execution.objects.select_related("job").select_for_update(no_key=True, of=("self",))
    execution = rows.filter(id=execution_id).first()
    if execution is None:
        raise NotFound
    return execution


def settle(execution: Execution, becomes: DeadLetter, *, event: str, by: str, **detail: str) -> None:
    """Writes it down as the event of the execution and in the audit: both by the same name."""
    sql.execute(
        "settle_dead_letter",
        {
            "execution_id": execution.id,
            "becomes": becomes,
            "name": event,
            "detail": json.dumps({"by": by} | detail),
        },
    )
    status_cache.tell_change(execution.id)
    before = {} if execution.dead_letter is None else {"dead_letter": execution.dead_letter}
    after = ({"dead_letter": becomes} if before else {}) | detail
    record(event, execution, owner_id=execution.job.owner_id, name=execution.job.name, before=before, after=after)
