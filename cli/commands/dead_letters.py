"""`retry` and `dlq`: what to do about executions that failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import app, check_execution_id, connect, group, resolve_job
from cli.commands.options import (
    AnswerOption,
    ExecutionArgument,
    FormatOption,
    JobOption,
    LimitOption,
    WaitLimitOption,
    WaitOption,
)
from cli.following import wait_and_exit
from cli.meant import refuse_job
from cli.results import Column, Format, field, moment, write_answer, write_list
from cli.terminal import say, write_result
from cli.values import parse_duration

if TYPE_CHECKING:
    from cli.records import Execution

ExecutionsArgument = Annotated[list[str], typer.Argument(metavar="EXECUTION...", help="The ids of dead letters.")]
COLUMNS: tuple[Column[Execution], ...] = (
    Column("ID", field("id"), whole=True),
    Column("JOB", field("job_name")),
    Column("STATUS", field("status")),
    Column("REASON", field("reason")),
    Column("EXIT", lambda execution: execution.exit_shown),
    Column("FOR", moment("scheduled_for")),
    Column("ENDED", moment("ended_at")),
    Column("ATTEMPT", field("attempt"), wide=True),
    Column("LETTER", field("dead_letter"), wide=True),
    Column("WORKER", field("worker_id"), wide=True),
    Column("JOB ID", field("job_id"), wide=True),
)


class Settled(StrEnum):
    OPEN = "open"
    REDRIVEN = "redriven"
    DISMISSED = "dismissed"


@app.command()
def retry(
    execution: ExecutionArgument,
    wait: WaitOption = False,
    wait_limit: WaitLimitOption = "1d",
    output: AnswerOption = None,
) -> None:
    """Try an execution that has ended once more, as a new one. Prints the new one's id."""
    deadline = time.monotonic() + parse_duration(wait_limit)
    execution_id = check_execution_id(execution)
    with connect() as client:
        again = refuse_job(client, execution_id, client.retry_execution)
        if wait:
            wait_and_exit(client, again.id, deadline=deadline, output=output)
    write_answer(again.raw, output, short=again.id)


dlq_app = group("dlq", help="List dead letters, redrive and dismiss them.")


@dlq_app.callback(invoke_without_command=True)
def dead_letters(
    context: typer.Context,
    job: JobOption = None,
    status: Annotated[Settled, typer.Option(help="Those that were redriven or dismissed, instead.")] = Settled.OPEN,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """List dead letters: executions that failed for good and that nobody has redriven or dismissed yet."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        job_id = None if job is None else resolve_job(client, job)
        found = client.dead_letters(job_id=job_id, status=status.value, limit=limit)
    write_list(found, COLUMNS, output, nothing="No dead letters.")


@dlq_app.command()
def redrive(executions: ExecutionsArgument, output: AnswerOption = None) -> None:
    """Try dead letters once more, each as a new execution. Prints the new ones' ids."""
    ids = [check_execution_id(word) for word in executions]
    with connect() as client:
        _settle(ids, client.redrive, lambda made: write_result(made.id), output)


@dlq_app.command()
def dismiss(executions: ExecutionsArgument, output: AnswerOption = None) -> None:
    """Take dead letters off the list. The executions and their logs stay."""
    ids = [check_execution_id(word) for word in executions]
    with connect() as client:
        _settle(ids, client.dismiss, lambda gone: say(f"Dismissed {gone.id} of {gone.job_name}."), output)


def _settle(
    ids: list[str], verb: Callable[[str], Execution], tell: Callable[[Execution], None], output: Format | None
) -> None:
    """One after the other; what was done is told, also where a later one is refused."""
    done: list[Execution] = []
    try:
        for execution_id in ids:
            done.append(verb(execution_id))
            if output is None:
                tell(done[-1])
    finally:
        if output is not None:
            write_list(done, COLUMNS, output)
