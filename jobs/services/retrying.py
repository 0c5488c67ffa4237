"""Tries an execution that has ended once more, as a new one: the old one and its attempts stay as they are.

Invariant: an execution is repeated at most once, however many ask; the repetition of a repetition makes a line.
"""

from __future__ import annotations

from uuid import UUID

from django.db import transaction

from jobs import wakeups
from jobs.errors import Conflict, IllegalTransition, NotFound
from jobs.models import DeadLetter, Execution, JobState, Trigger
from jobs.services import transitions
from jobs.services.database import bounded
from jobs.services.dead_letters import lock_execution, settle
from jobs.services.locking import lock_job
from jobs.services.transitions import NewExecution
from jobs.states import TERMINAL, State


def retry_execution(execution_id: UUID, *, by: str) -> UUID:
    """A new execution of the job as it is now, for the same instant; returns its id."""
    with transaction.atomic(), bounded(statement_seconds=5):
        return _repeat(lock_execution(execution_id), event="execution.retried", by=by)


def redrive_dead_letter(execution_id: UUID, *, by: str) -> UUID:
    """The same, for one that is still on the dead-letter list."""
    with transaction.atomic(), bounded(statement_seconds=5):
        execution = lock_execution(execution_id)
        if execution.dead_letter is None:
            raise NotFound
        if execution.dead_letter == DeadLetter.DISMISSED:
            raise Conflict("The dead letter was dismissed; retry the execution if you want it to run after all.")
        return _repeat(execution, event="execution.redriven", by=by)


def _repeat(execution: Execution, *, event: str, by: str) -> UUID:
    if execution.state not in TERMINAL:
        raise IllegalTransition(f"The execution has not ended yet ({execution.state}); there is nothing to retry.")
    if execution.state == State.SUCCEEDED:
        raise IllegalTransition("The execution succeeded; execute its job to run it once more.")
    before = Execution.objects.filter(retry_of=execution.id).values_list("id", flat=True).first()
    if before is not None:
        raise Conflict(f"The execution was retried already, as {before}; retry that one instead.")
    if lock_job(execution.job_id).state == JobState.CANCELLED:
        raise Conflict("The job is cancelled; submit it anew to run it.")
    # In a run of its own: what followed it in its first run was decided there, and follows the new one anew.
    again = NewExecution(execution.job_id, Trigger.RETRY, scheduled_for=execution.scheduled_for, retry_of=execution.id)
    (own,) = transitions.create_executions([again])
    settle(execution, DeadLetter.REDRIVEN, event=event, by=by, **{"as": str(own)})
    transaction.on_commit(wakeups.wake_beat)
    return own
