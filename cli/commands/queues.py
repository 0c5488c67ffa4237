"""`queues` and `queue`: where jobs wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import app, connect
from cli.commands.job_options import given
from cli.commands.options import AnswerOption, FormatOption, YesOption
from cli.errors import ClientError, UsageMistakeError
from cli.results import Column, Format, field, moment, write_answer, write_list, write_object
from cli.terminal import confirm, say
from cli.values import parse_duration

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Queue

MOST_QUEUES = 10_000
COLUMNS: tuple[Column[Queue], ...] = (
    Column("NAME", field("name"), whole=True),
    Column("STATE", lambda queue: "paused" if queue.paused else "open"),
    Column("POOL", field("pool")),
    Column("PRIORITY", field("priority")),
    Column("AT MOST", field("max_concurrency")),
    Column("AGING", field("aging_seconds"), wide=True),
    Column("CREATED", moment("created_at"), wide=True),
    Column("ID", field("id"), wide=True),
)


@app.command()
def queues(output: FormatOption = Format.TABLE) -> None:
    """List queues: whether each is open or paused, who serves it, and how many of it run at once."""
    with connect() as client:
        found = client.queues()
    write_list(found, COLUMNS, output)


@app.command()
def queue(  # noqa: PLR0917  each is an option of the command line
    name: Annotated[str, typer.Argument(metavar="QUEUE", help="Its name.")],
    create: Annotated[bool, typer.Option("--create", help="Make it.")] = False,
    pause: Annotated[
        bool | None, typer.Option("--pause/--resume", help="Start nothing more of it; what runs goes on.")
    ] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="The workers that serve it.")] = None,
    priority: Annotated[
        int | None, typer.Option(metavar="N", min=-100, max=100, help="Added to the priority of each of its jobs.")
    ] = None,
    max_concurrency: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Executions at the same time.")
    ] = None,
    no_limit: Annotated[bool, typer.Option("--no-limit", help="Any number at the same time.")] = False,
    aging: Annotated[
        str | None, typer.Option(metavar="DURATION", help="A step of priority is worth so long a wait.")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete it, if no job is or was in it.")] = False,
    yes: YesOption = False,
    output: AnswerOption = None,
) -> None:
    """Show a queue; as staff, make, tune, pause, resume or delete it.

    \b
    punctual queue batch --create --max-concurrency 4 --priority -5
    punctual queue batch --pause
    """
    if no_limit and max_concurrency is not None:
        raise UsageMistakeError("--no-limit has no meaning beside --max-concurrency.")
    fields: dict[str, object] = given(
        paused=pause,
        pool=pool,
        priority=priority,
        max_concurrency=max_concurrency,
        aging_seconds=None if aging is None else parse_duration(aging),
    )
    if no_limit:
        fields["max_concurrency"] = None
    if delete and (create or fields):
        raise UsageMistakeError("--delete has no meaning beside a change.")
    with connect() as client:
        if create:
            made = client.create_queue(name, fields)
            say(f"Made the queue {made.name}.")
            write_answer(made.raw, output)
            return
        known = _find(client, name)
        if delete:
            confirm(f"Delete the queue {known.name}?", yes=yes)
            client.delete_queue(known.id)
            say(f"Deleted {known.name}.")
        elif fields:
            changed = client.edit_queue(known.id, fields)
            say(f"The queue {changed.name} is {'paused' if changed.paused else 'open'}.")
            write_answer(changed.raw, output)
        else:
            write_object(known.raw, output or Format.TABLE)


def _find(client: Client, word: str) -> Queue:
    for each in client.queues(limit=MOST_QUEUES):
        if word in (each.name, each.id):
            return each
    raise ClientError(f"There is no queue called {word!r}: ./punctual queues lists them.")
