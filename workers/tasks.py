"""The Celery task behind a run. A message is only a hint: what does not hold a claim runs nothing."""

from __future__ import annotations

from celery import shared_task
from celery.exceptions import Ignore

from jobs.messages import RUN_TASK, parse_run_message
from jobs.states import State
from workers.errors import ExecutionFailed
from workers.run import hold_for, run_attempt
from workers.runtime import equipment


@shared_task(name=RUN_TASK, ignore_result=True, throws=(ExecutionFailed,))
def run_execution(execution_id: object = None, attempt: object = None) -> str:
    """Raises what Flower should show as a failure; the state of the execution was written before."""
    message = parse_run_message(execution_id, attempt)
    if message is None:
        raise Ignore("not a message of ours")
    worker = equipment()
    moved = run_attempt(worker, hold_for(message, worker.held))
    if moved is None:
        raise Ignore("not ours to run")
    if moved.state != State.SUCCEEDED:
        raise ExecutionFailed(f"Attempt {message.attempt} of {message.execution_id} ended; now {moved.state}.")
    return moved.state
