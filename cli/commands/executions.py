"""`executions` and `logs`: what ran, and what it said."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import app, connect, resolve_job, resolve_worker
from cli.commands.options import FormatOption, JobOption, LimitOption, LookedAtArgument
from cli.following import follow, leaving_it_running
from cli.meant import of_execution
from cli.results import Column, Format, field, moment, write_list
from cli.terminal import write_log, write_log_bytes
from cli.values import parse_moment

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Execution

# Ctrl-C ends a live view; this only keeps a forgotten one from lasting for ever.
LONGEST_VIEW_SECONDS = 7 * 86_400
COLUMNS: tuple[Column[Execution], ...] = (
    Column("ID", field("id"), whole=True),
    Column("JOB", field("job_name")),
    Column("STATUS", field("status")),
    Column("PROGRESS", lambda execution: execution.progress, spare=3),
    Column("ATTEMPT", field("attempt"), spare=5),
    Column("EXIT", lambda execution: execution.exit_shown, spare=2),
    Column("STARTED", moment("started_at"), spare=1),
    Column("ENDED", moment("ended_at"), spare=4),
    Column("REASON", field("reason"), wide=True),
    Column("TRIGGER", field("trigger"), wide=True),
    Column("FOR", moment("scheduled_for"), wide=True),
    Column("WORKER", field("worker_id"), wide=True),
    Column("JOB ID", field("job_id"), wide=True),
)


@app.command()
def executions(  # noqa: PLR0917  each is an option of the command line
    job: JobOption = None,
    status: Annotated[
        str | None, typer.Option(metavar="STATE", help="Only those in this state, such as failed.")
    ] = None,
    worker: Annotated[
        str | None, typer.Option(metavar="WORKER", help="Only those on this worker (id or name).")
    ] = None,
    queue: Annotated[str | None, typer.Option(metavar="QUEUE", help="Only those of this queue.")] = None,
    owner: Annotated[str | None, typer.Option(metavar="USER", help="Only those of this user's jobs.")] = None,
    team: Annotated[str | None, typer.Option(metavar="TEAM", help="Only those of jobs of this team.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only those for this time or later; 1h is an hour ago.")
    ] = None,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """List executions, newest first."""
    first = None if since is None else parse_moment(since)
    with connect() as client:
        found = client.executions(
            job_id=None if job is None else resolve_job(client, job),
            worker_id=None if worker is None else resolve_worker(client, worker),
            status=status,
            queue=queue,
            owner=owner,
            team=team,
            scheduled_from=first,
            limit=limit,
        )
    filtered = any((job, status, worker, queue, owner, team, since))
    nothing = "No execution matches." if filtered else "No executions yet: ./punctual run JOB makes one."
    write_list(found, COLUMNS, output, nothing=nothing)


@app.command()
def logs(
    execution: LookedAtArgument,
    live: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the execution ends.")] = False,
    attempt: Annotated[int | None, typer.Option(metavar="N", min=1, help="Default: the latest.")] = None,
) -> None:
    """Print or follow the log of an execution; of a job, that of its newest one."""
    with connect() as client:
        show = _follow_log if live else _print_log
        of_execution(client, execution, lambda execution_id: show(client, execution_id, attempt))


def _print_log(client: Client, execution_id: str, attempt: int | None) -> None:
    with client.logs(execution_id, attempt=attempt) as pieces:
        write_log_bytes(pieces)


def _follow_log(client: Client, execution_id: str, attempt: int | None) -> None:
    first = attempt if attempt is not None else client.execution(execution_id).attempt
    deadline = time.monotonic() + LONGEST_VIEW_SECONDS
    with leaving_it_running(execution_id, "following"):
        for chunk in follow(client, execution_id, first_attempt=first, deadline=deadline):
            write_log(chunk.text)
