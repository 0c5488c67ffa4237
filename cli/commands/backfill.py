"""`backfill`: instants of the past that a job has no execution for, made up for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import app, connect, find_named
from cli.commands.options import FormatOption, JobArgument, LimitOption
from cli.errors import UsageMistakeError
from cli.results import Column, Format, field, moment, write_list
from cli.terminal import say
from cli.values import is_id, parse_moment

if TYPE_CHECKING:
    from cli.records import Backfill

COLUMNS: tuple[Column[Backfill], ...] = (
    Column("ID", field("id"), whole=True),
    Column("STATUS", field("status")),
    Column("DONE", lambda backfill: f"{backfill.done}/{backfill.expected}"),
    Column("FROM", moment("from")),
    Column("TO", moment("to")),
    Column("BY", field("requested_by")),
    Column("ASKED", moment("created_at")),
    Column("ENDED", moment("ended_at"), wide=True),
    Column("REACHED", moment("cursor"), wide=True),
    Column("JOB ID", field("job_id"), wide=True),
)


@app.command()
def backfill(  # noqa: PLR0917  each is an option of the command line
    job: JobArgument,
    first: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="From this time on; 7d is a week ago.")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Until then. Default: now.")] = None,
    cancel: Annotated[
        str | None, typer.Option("--cancel", metavar="ID", help="Stop this backfill; what it made stays.")
    ] = None,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """Run a job for past instants of its schedules that have no execution. Without a range: list its backfills."""
    if cancel is not None and (first is not None or last is not None):
        raise UsageMistakeError("--cancel has no meaning beside --from or --to.")
    if first is None and last is not None:
        raise UsageMistakeError("--to has no meaning without --from.")
    if cancel is not None and not is_id(cancel):
        raise UsageMistakeError(f"{cancel!r} is not the id of a backfill: ./punctual backfill {job} lists them.")
    from_, to = (None if word is None else parse_moment(word) for word in (first, last))
    with connect() as client:
        named = None if is_id(job) else find_named(client, job)
        job_id = job if named is None else named.id
        if cancel is not None:
            stopped = client.cancel_backfill(cancel)
            say(f"The backfill {stopped.id} is {stopped.status}; it made {stopped.done} executions.")
            write_list([stopped], COLUMNS, output)
        elif from_ is not None:
            made = client.backfill_job(job_id, from_=from_, to=to or parse_moment("1s"))
            of = "" if named is None else f" of {named.name_and_owner}"
            say(f"Catching up on {made.expected} instants{of}. See how far it is: ./punctual backfill {job_id}")
            write_list([made], COLUMNS, output)
        else:
            nothing = "No backfills of it yet: --from 7d catches up on a week."
            write_list(client.backfills(job_id, limit=limit), COLUMNS, output, nothing=nothing)
