"""The Celery task that runs an execution; its message is only a hint, and nothing runs without a claim."""

from __future__ import annotations

from celery import shared_task
from celery.exceptions import Ignore

from jobs.domain.messages import RUN_TASK, parse_run_message
from jobs.domain.states import State
from workers.errors import ExecutionFailed, WorkerCannotStart
from workers.run.run import RunContext, make_fence, run_attempt

_run_context: RunContext | None = None


def set_run_context(context: RunContext) -> None:
    """Set the context of this worker process; called once, by the agent's bootstep."""
    global _run_context  # noqa: PLW0603 - one worker, one process
    _run_context = context


@shared_task(name=RUN_TASK, ignore_result=True, throws=(ExecutionFailed,))
def run_execution(execution_id: object = None, attempt: object = None) -> str:
    """Run the attempt of a message; raise only to show a failure in Flower, as the state is already stored."""
    message = parse_run_message(execution_id, attempt)
    if message is None:
        raise Ignore("not a message of ours")
    if _run_context is None:
        raise WorkerCannotStart("This Celery worker runs no executions: it was started without Punctual's agent.")
    moved = run_attempt(_run_context, make_fence(message, _run_context.held))
    if moved is None:
        raise Ignore("not claimed by this worker")
    if moved.state != State.SUCCEEDED:
        raise ExecutionFailed(f"Attempt {message.attempt} of {message.execution_id} ended; now {moved.state}.")
    return moved.state
