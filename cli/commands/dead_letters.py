"""`retry`, `dead-letters`, `redrive` and `dismiss`: what to do about executions that failed."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

import typer

from cli.app import app, check_execution_id, connect, resolve_job
from cli.commands.options import ExecutionArgument, FormatOption, LimitOption, WaitLimitOption, WaitOption
from cli.following import wait_and_exit
from cli.terminal import Format, say, shown_time, write_json, write_result, write_table
from cli.values import parse_duration

ExecutionsArgument = Annotated[list[str], typer.Argument(metavar="EXECUTION...", help="The ids of dead letters.")]


class Settled(StrEnum):
    OPEN = "open"
    REDRIVEN = "redriven"
    DISMISSED = "dismissed"


@app.command()
def retry(execution: ExecutionArgument, wait: WaitOption = False, wait_limit: WaitLimitOption = "1d") -> None:
    """Try an execution that has ended once more, as a new one. Prints the new one's id."""
    deadline = time.monotonic() + parse_duration(wait_limit)
    execution_id = check_execution_id(execution)
    with connect() as client:
        again = client.retry_execution(execution_id)
        if wait:
            wait_and_exit(client, again.id, deadline=deadline)
        write_result(again.id)


@app.command(name="dead-letters")
def dead_letters(
    job: Annotated[str | None, typer.Option(help="Only those of this job (id or name).")] = None,
    status: Annotated[Settled, typer.Option(help="Those that were redriven or dismissed, instead.")] = Settled.OPEN,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """List executions that failed for good and that nobody has redriven or dismissed yet."""
    with connect() as client:
        job_id = None if job is None else resolve_job(client, job)
        found = client.dead_letters(job_id=job_id, status=status.value, limit=limit)
    if output is Format.JSON:
        write_json([execution.raw for execution in found])
        return
    rows = [
        (
            execution.id,
            execution.job_name,
            execution.status,
            execution.reason or "",
            execution.exit_shown,
            shown_time(execution.scheduled_for),
            shown_time(execution.ended_at),
        )
        for execution in found
    ]
    write_table(("ID", "JOB", "STATUS", "REASON", "EXIT", "FOR", "ENDED"), rows)


@app.command()
def redrive(executions: ExecutionsArgument) -> None:
    """Try dead letters once more, each as a new execution. Prints the new ones' ids."""
    ids = [check_execution_id(word) for word in executions]
    with connect() as client:
        for execution_id in ids:
            write_result(client.redrive(execution_id).id)


@app.command()
def dismiss(executions: ExecutionsArgument) -> None:
    """Take dead letters off the list. The executions and their logs stay."""
    ids = [check_execution_id(word) for word in executions]
    with connect() as client:
        for execution_id in ids:
            dismissed = client.dismiss(execution_id)
            say(f"Dismissed {dismissed.id} of {dismissed.job_name}.")
