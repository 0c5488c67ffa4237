"""`executions`, `logs`, `search` and `explain`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import app, connect, resolve_job_id, resolve_worker_id
from punctual_cli.argument_parsing import parse_duration, parse_instant, parse_time
from punctual_cli.commands.options import ExecutionOrJobArgument, FormatOption, JobOption, LimitOption
from punctual_cli.following import detach_on_interrupt, follow_log
from punctual_cli.output.results import Column, Format, raw_field, time_field, write_data, write_fields, write_list
from punctual_cli.output.terminal import (
    console,
    escape_control_characters,
    format_time,
    write_log,
    write_log_bytes,
    write_message,
    write_result,
)
from punctual_cli.resolve_execution import with_execution
from punctual_client.errors import PROGRAM
from punctual_client.json_fields import as_objects

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.executions import Execution
    from punctual_client.resources.logs import LogMatch

# Ctrl-C ends a live view; the limit ends a forgotten one.
MAX_FOLLOW_SECONDS = 7 * 86_400
COLUMNS: tuple[Column[Execution], ...] = (
    Column("ID", raw_field("id"), whole=True),
    Column("JOB", raw_field("job_name")),
    Column("STATUS", raw_field("status")),
    Column("PROGRESS", lambda execution: execution.progress, drop_order=3),
    Column("ATTEMPT", raw_field("attempt"), drop_order=5),
    Column("EXIT", lambda execution: execution.exit_description, drop_order=2),
    Column("STARTED", time_field("started_at"), drop_order=1),
    Column("ENDED", time_field("ended_at"), drop_order=4),
    Column("REASON", raw_field("reason"), wide=True),
    Column("TRIGGER", raw_field("trigger"), wide=True),
    Column("FOR", time_field("scheduled_for"), wide=True),
    Column("WORKER", raw_field("worker_id"), wide=True),
    Column("JOB ID", raw_field("job_id"), wide=True),
)
MATCH_COLUMNS: tuple[Column[LogMatch], ...] = (
    Column("AT", time_field("at")),
    Column("JOB", raw_field("job_name")),
    Column("EXECUTION", raw_field("execution_id"), whole=True),
    Column("ATTEMPT", raw_field("attempt")),
    Column("STREAM", raw_field("stream")),
    Column("LINE", raw_field("line")),
)


@app.command()
def executions(  # noqa: PLR0917  one parameter per option
    job: JobOption = None,
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Filter by status, such as failed.")] = None,
    worker: Annotated[str | None, typer.Option(metavar="WORKER", help="Filter by worker (name or id).")] = None,
    queue: Annotated[str | None, typer.Option(metavar="QUEUE", help="Filter by queue.")] = None,
    owner: Annotated[str | None, typer.Option(metavar="USER", help="Filter by the job's owner.")] = None,
    team: Annotated[str | None, typer.Option(metavar="TEAM", help="Filter by the job's team.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only those scheduled since then; 1h is an hour ago.")
    ] = None,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """List executions, newest first."""
    scheduled_from = None if since is None else parse_time(since)
    with connect() as client:
        found = client.executions(
            job_id=None if job is None else resolve_job_id(client, job),
            worker_id=None if worker is None else resolve_worker_id(client, worker),
            status=status,
            queue=queue,
            owner=owner,
            team=team,
            scheduled_from=scheduled_from,
            limit=limit,
        )
    filtered = any((job, status, worker, queue, owner, team, since))
    if_empty = "No execution matches." if filtered else f"No executions yet: {PROGRAM} run JOB makes one."
    write_list(found, COLUMNS, output, if_empty=if_empty)


@app.command()
def logs(
    execution: ExecutionOrJobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the execution ends.")] = False,
    attempt: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Attempt number. Default: the latest.")
    ] = None,
) -> None:
    """Print or follow the log of an execution, or of a job's newest one."""
    with connect() as client:
        show = _follow_log if follow else _print_log
        with_execution(client, execution, lambda execution_id: show(client, execution_id, attempt))


@app.command()
def search(  # noqa: PLR0917  one parameter per option
    query: Annotated[
        str, typer.Argument(help='Words and "phrases" that a line contains; -word for one that it does not.')
    ],
    job: JobOption = None,
    since: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only lines of the last 2h, for example.")
    ] = None,
    from_word: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Only lines since then.")] = None,
    to_word: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only lines until then.")] = None,
    stream: Annotated[str | None, typer.Option(metavar="STREAM", help="Filter by stream: stdout or stderr.")] = None,
    substring: Annotated[
        bool, typer.Option("--substring", help="Search for the query as it is, inside words too.")
    ] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="Maximum number of lines.")] = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """Search the logs of all executions, newest first."""
    from_ = None if from_word is None else parse_instant(from_word, None)
    if since is not None:
        parse_duration(since)
        from_ = parse_time(since)
    with connect() as client:
        found = client.search_logs(
            query,
            mode="substring" if substring else "words",
            job_id=None if job is None else resolve_job_id(client, job),
            from_=from_,
            to=None if to_word is None else parse_instant(to_word, None),
            stream=stream,
            limit=limit,
        )
    if output is not Format.TABLE:
        write_list(found.lines, MATCH_COLUMNS, output)
    else:
        for match in found.lines:
            _write_match(match)
    if not found.lines and found.complete:
        write_message("No line matches.")
    if not found.complete:
        write_message("The search took too long and is incomplete: narrow it with --job, --since or a rarer word.")


@app.command()
def explain(
    execution: ExecutionOrJobArgument,
    every: Annotated[bool, typer.Option("--all", help="Show open gates too.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Explain why an execution is waiting: show every closed gate before it."""
    with connect() as client:
        found = with_execution(client, execution, client.explain_execution)
    if output in (Format.JSON, Format.YAML):
        write_data(found, output)
        return
    write_result(str(found.get("words") or ""))
    every = every or output is Format.WIDE
    gates = [gate for gate in as_objects(found.get("gates")) if every or gate.get("open") is not True]
    if gates:
        rows = [
            (str(gate.get("gate")), "open" if gate.get("open") else "closed", str(gate.get("words"))) for gate in gates
        ]
        write_fields(rows, ("GATE", "IS", "WHY"))


def _print_log(client: Client, execution_id: str, attempt: int | None) -> None:
    with client.logs(execution_id, attempt=attempt) as pieces:
        write_log_bytes(pieces)


def _follow_log(client: Client, execution_id: str, attempt: int | None) -> None:
    first = attempt if attempt is not None else client.execution(execution_id).attempt
    deadline = time.monotonic() + MAX_FOLLOW_SECONDS
    with detach_on_interrupt(execution_id, "following"):
        for chunk in follow_log(client, execution_id, first_attempt=first, deadline=deadline):
            write_log(chunk.text)


def _write_match(match: LogMatch) -> None:
    head = f"{format_time(match.at)} {match.job_name} {match.execution_id}#{match.attempt} {match.stream}: "
    if not sys.stdout.isatty():
        print(escape_control_characters(head) + escape_control_characters(match.line, keep="\t"))
        return
    from rich.text import Text  # noqa: PLC0415  only a terminal needs it

    text, position = Text(escape_control_characters(head), style="dim"), 0
    for start, end in match.matches:
        text.append(escape_control_characters(match.line[position:start], keep="\t"), style="not dim")
        text.append(escape_control_characters(match.line[start:end], keep="\t"), style="not dim bold red")
        position = end
    text.append(escape_control_characters(match.line[position:], keep="\t"), style="not dim")
    console(wrap=False).print(text)
