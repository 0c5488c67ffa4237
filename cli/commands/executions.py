"""`executions` and `logs`: what ran, and what it said."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from cli.app import app, check_execution_id, connect, resolve_job
from cli.commands.options import ExecutionArgument, FormatOption, LimitOption
from cli.following import EXIT_INTERRUPTED, follow
from cli.terminal import Format, shown_time, write_json, write_log, write_log_bytes, write_table

# Ctrl-C ends a live view; this only keeps a forgotten one from lasting for ever.
LONGEST_VIEW_SECONDS = 7 * 86_400


@app.command()
def executions(
    job: Annotated[str | None, typer.Option(help="Only those of this job (id or name).")] = None,
    status: Annotated[str | None, typer.Option(help="Only those in this state, such as failed.")] = None,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """List executions."""
    with connect() as client:
        job_id = None if job is None else resolve_job(client, job)
        found = client.executions(job_id=job_id, status=status, limit=limit)
    if output is Format.JSON:
        write_json([execution.raw for execution in found])
        return
    rows = [
        (
            execution.id,
            execution.job_name,
            execution.status,
            execution.progress,
            str(execution.attempt),
            execution.exit_shown,
            shown_time(execution.started_at),
            shown_time(execution.ended_at),
        )
        for execution in found
    ]
    write_table(("ID", "JOB", "STATUS", "PROGRESS", "ATTEMPT", "EXIT", "STARTED", "ENDED"), rows)


@app.command()
def logs(
    execution: ExecutionArgument,
    live: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the execution ends.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Default: the latest.")] = None,
) -> None:
    """Print the log of an execution."""
    execution_id = check_execution_id(execution)
    with connect() as client:
        if not live:
            with client.logs(execution_id, attempt=attempt) as pieces:
                write_log_bytes(pieces)
            return
        first = attempt if attempt is not None else client.execution(execution_id).attempt
        deadline = time.monotonic() + LONGEST_VIEW_SECONDS
        try:
            for chunk in follow(client, execution_id, first_attempt=first, deadline=deadline):
                write_log(chunk.text)
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
