"""Retries by hand: run a finished execution once more as a new one; the old one and its attempts stay unchanged.

Invariant: an execution is retried at most once, however many users ask; a retry can be retried in turn.
"""

from __future__ import annotations

from uuid import UUID

from django.db import transaction

from jobs.db import wakeups
from jobs.db.locks import lock_execution, lock_job
from jobs.db.transactions import with_timeouts
from jobs.domain.errors import Conflict, IllegalTransition, NotFound
from jobs.domain.states import TERMINAL, State
from jobs.execution import transitions
from jobs.execution.dead_letters import resolve_dead_letter
from jobs.execution.transitions import NewExecution
from jobs.models import DeadLetter, Execution, JobState, Trigger


def retry_execution(execution_id: UUID, *, by: str) -> UUID:
    """Create an execution of the job as it is now, for the same instant; return its id."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        return _retry(lock_execution(execution_id), event="execution.retried", by=by)


def redrive_dead_letter(execution_id: UUID, *, by: str) -> UUID:
    """Retry an execution that is still on the dead-letter list."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        execution = lock_execution(execution_id)
        if execution.dead_letter is None:
            raise NotFound
        if execution.dead_letter == DeadLetter.DISMISSED:
            raise Conflict("The dead letter was dismissed; retry the execution if you want it to run after all.")
        return _retry(execution, event="execution.redriven", by=by)


def _retry(execution: Execution, *, event: str, by: str) -> UUID:
    if execution.state not in TERMINAL:
        raise IllegalTransition(f"The execution has not ended yet ({execution.state}); there is nothing to retry.")
    if execution.state == State.SUCCEEDED:
        raise IllegalTransition("The execution succeeded; execute its job to run it once more.")
    before = Execution.objects.filter(retry_of=execution.id).values_list("id", flat=True).first()
    if before is not None:
        raise Conflict(f"The execution was retried already, as {before}; retry that one instead.")
    if lock_job(execution.job_id).state == JobState.CANCELLED:
        raise Conflict("The job is cancelled; submit it again to run it.")
    # In a run of its own: its dependents were decided in the first run, and run again in the new one.
    again = NewExecution(execution.job_id, Trigger.RETRY, scheduled_for=execution.scheduled_for, retry_of=execution.id)
    (own,) = transitions.create_executions([again])
    resolve_dead_letter(execution, DeadLetter.REDRIVEN, event=event, by=by, **{"as": str(own)})
    transaction.on_commit(wakeups.wake_beat)
    return own
