"""`search`: lines in all logs, the newest first."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from cli.app import app, connect, resolve_job
from cli.commands.options import FormatOption
from cli.records import FoundLine
from cli.terminal import Format, neutralise, say, shown_time, write_json
from cli.values import parse_duration, parse_instant


@app.command()
def search(  # noqa: PLR0917 - options are named by whoever types them
    query: Annotated[str, typer.Argument(help='Words and "phrases" on one line; -word: not with this one.')],
    job: Annotated[str | None, typer.Option(help="Only the logs of this job (id or name).")] = None,
    since: Annotated[str | None, typer.Option(metavar="DURATION", help="Only lines of the last 2h, say.")] = None,
    first: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Only lines from then on.")] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only lines until then.")] = None,
    stream: Annotated[str | None, typer.Option(help="stdout or stderr.")] = None,
    substring: Annotated[bool, typer.Option("--substring", help="Take the query as it is, also within words.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most this many lines.")] = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """Search the logs of all executions."""
    from_ = None if first is None else parse_instant(first, None)
    if since is not None:
        from_ = (datetime.now(UTC) - timedelta(seconds=parse_duration(since))).isoformat().replace("+00:00", "Z")
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
    if output is Format.JSON:
        write_json([line.raw for line in found.lines])
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
    shown, done = Text(neutralise(head), style="dim"), 0
    for start, end in line.matches:
        shown.append(neutralise(line.line[done:start], keep="\t"), style="not dim")
        shown.append(neutralise(line.line[start:end], keep="\t"), style="not dim bold red")
        done = end
    shown.append(neutralise(line.line[done:], keep="\t"), style="not dim")
    Console(highlight=False, soft_wrap=True).print(shown)
