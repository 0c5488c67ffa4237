"""`search`: lines in all logs, the newest first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import app, connect, resolve_job
from cli.commands.options import FormatOption, JobOption
from cli.results import Column, Format, field, moment, write_list
from cli.terminal import console, neutralise, say, shown_time
from cli.values import parse_duration, parse_instant, parse_moment

if TYPE_CHECKING:
    from cli.records import FoundLine

COLUMNS: tuple[Column[FoundLine], ...] = (
    Column("AT", moment("at")),
    Column("JOB", field("job_name")),
    Column("EXECUTION", field("execution_id"), whole=True),
    Column("ATTEMPT", field("attempt")),
    Column("STREAM", field("stream")),
    Column("LINE", field("line")),
)


@app.command()
def search(  # noqa: PLR0917 - options are named by whoever types them
    query: Annotated[str, typer.Argument(help='Words and "phrases" on one line; -word: not with this one.')],
    job: JobOption = None,
    since: Annotated[str | None, typer.Option(metavar="DURATION", help="Only lines of the last 2h, say.")] = None,
    first: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Only lines from then on.")] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only lines until then.")] = None,
    stream: Annotated[str | None, typer.Option(metavar="STREAM", help="stdout or stderr.")] = None,
    substring: Annotated[bool, typer.Option("--substring", help="Take the query as it is, also within words.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="At most this many lines.")] = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """Search the logs of all executions."""
    from_ = None if first is None else parse_instant(first, None)
    if since is not None:
        parse_duration(since)
        from_ = parse_moment(since)
    with connect() as client:
        found = client.search_logs(
            query,
            mode="substring" if substring else "words",
            job_id=None if job is None else resolve_job(client, job),
            from_=from_,
            to=None if last is None else parse_instant(last, None),
            stream=stream,
            limit=limit,
        )
    if output is not Format.TABLE:
        write_list(found.lines, COLUMNS, output)
    else:
        for line in found.lines:
            _write(line)
    if not found.lines and found.complete:
        say("No line matches.")
    if not found.complete:
        say("Not all logs were looked at in the time there was: narrow it with --job, --since or a rarer word.")


def _write(line: FoundLine) -> None:
    head = f"{shown_time(line.at)} {line.job_name} {line.execution_id}#{line.attempt} {line.stream}: "
    if not sys.stdout.isatty():
        print(neutralise(head) + neutralise(line.line, keep="\t"))
        return
    from rich.text import Text  # noqa: PLC0415  only a terminal needs what draws

    shown, done = Text(neutralise(head), style="dim"), 0
    for start, end in line.matches:
        shown.append(neutralise(line.line[done:start], keep="\t"), style="not dim")
        shown.append(neutralise(line.line[start:end], keep="\t"), style="not dim bold red")
        done = end
    shown.append(neutralise(line.line[done:], keep="\t"), style="not dim")
    console(wrap=False).print(shown)
