"""`retry` and `dlq`: run failed executions again, or dismiss them."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import add_command_group, app, check_execution_id, connect, resolve_job_id
from punctual_cli.argument_parsing import parse_duration
from punctual_cli.commands.options import (
    ExecutionArgument,
    FormatOption,
    JobOption,
    LimitOption,
    ResultFormatOption,
    WaitLimitOption,
    WaitOption,
)
from punctual_cli.following import wait_and_exit
from punctual_cli.output.results import Column, Format, raw_field, time_field, write_list, write_resource
from punctual_cli.output.terminal import write_message, write_result
from punctual_cli.resolve_execution import with_execution_id

if TYPE_CHECKING:
    from punctual_client.resources.executions import Execution

ExecutionsArgument = Annotated[list[str], typer.Argument(metavar="EXECUTION...", help="Ids of dead letters.")]
COLUMNS: tuple[Column[Execution], ...] = (
    Column("ID", raw_field("id"), whole=True),
    Column("JOB", raw_field("job_name")),
    Column("STATUS", raw_field("status")),
    Column("REASON", raw_field("reason")),
    Column("EXIT", lambda execution: execution.exit_description),
    Column("FOR", time_field("scheduled_for")),
    Column("ENDED", time_field("ended_at")),
    Column("ATTEMPT", raw_field("attempt"), wide=True),
    Column("LETTER", raw_field("dead_letter"), wide=True),
    Column("WORKER", raw_field("worker_id"), wide=True),
    Column("JOB ID", raw_field("job_id"), wide=True),
)


class DeadLetterStatus(StrEnum):
    OPEN = "open"
    REDRIVEN = "redriven"
    DISMISSED = "dismissed"


@app.command()
def retry(
    execution: ExecutionArgument,
    wait: WaitOption = False,
    wait_limit: WaitLimitOption = "1d",
    output: ResultFormatOption = None,
) -> None:
    """Retry an execution that has ended, as a new execution. Prints the new id."""
    deadline = time.monotonic() + parse_duration(wait_limit)
    execution_id = check_execution_id(execution)
    with connect() as client:
        retried = with_execution_id(client, execution_id, client.retry_execution)
        if wait:
            wait_and_exit(client, retried.id, deadline=deadline, output=output)
    write_resource(retried.raw, output, short=retried.id)


dlq_app = add_command_group("dlq", help="List, redrive and dismiss dead letters.")


@dlq_app.callback(invoke_without_command=True)
def dead_letters(
    context: typer.Context,
    job: JobOption = None,
    status: Annotated[
        DeadLetterStatus, typer.Option(help="List open, redriven or dismissed ones.")
    ] = DeadLetterStatus.OPEN,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """List dead letters: executions that failed for good and are neither redriven nor dismissed."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        job_id = None if job is None else resolve_job_id(client, job)
        found = client.dead_letters(job_id=job_id, status=status.value, limit=limit)
    write_list(found, COLUMNS, output, if_empty="No dead letters.")


@dlq_app.command()
def redrive(executions: ExecutionsArgument, output: ResultFormatOption = None) -> None:
    """Retry dead letters, each as a new execution. Prints the new ids."""
    ids = [check_execution_id(word) for word in executions]
    with connect() as client:
        _process_each(ids, client.redrive, lambda created: write_result(created.id), output)


@dlq_app.command()
def dismiss(executions: ExecutionsArgument, output: ResultFormatOption = None) -> None:
    """Remove dead letters from the list. The executions and their logs remain."""
    ids = [check_execution_id(word) for word in executions]
    with connect() as client:
        _process_each(
            ids, client.dismiss, lambda each: write_message(f"Dismissed {each.id} of {each.job_name}."), output
        )


def _process_each(
    ids: list[str], action: Callable[[str], Execution], report: Callable[[Execution], None], output: Format | None
) -> None:
    """Process one after the other, and report the ones done even if a later one is refused."""
    done: list[Execution] = []
    try:
        for execution_id in ids:
            done.append(action(execution_id))
            if output is None:
                report(done[-1])
    finally:
        if output is not None:
            write_list(done, COLUMNS, output)
