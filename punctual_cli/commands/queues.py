"""`queues` and `queue`: list, create, tune, pause and delete queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import MAX_LISTED, app, connect, find_by_name, unknown_name
from punctual_cli.argument_parsing import parse_duration
from punctual_cli.commands.options import FormatOption, ResultFormatOption, YesOption
from punctual_cli.output.results import Column, Format, raw_field, time_field, write_list, write_object, write_resource
from punctual_cli.output.terminal import confirm, write_message
from punctual_client.errors import UsageError
from punctual_client.resources.base import omit_none

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.queues import Queue

COLUMNS: tuple[Column[Queue], ...] = (
    Column("NAME", raw_field("name"), whole=True),
    Column("STATE", lambda queue: "paused" if queue.paused else "open"),
    Column("POOL", raw_field("pool")),
    Column("PRIORITY", raw_field("priority")),
    Column("LIMIT", raw_field("max_concurrency")),
    Column("AGING", raw_field("aging_seconds"), wide=True),
    Column("TEAM", raw_field("team")),
    Column("CREATED", time_field("created_at"), wide=True),
    Column("ID", raw_field("id"), wide=True),
)


@app.command()
def queues(output: FormatOption = Format.TABLE) -> None:
    """List queues with their state, their worker pool and their limit of concurrent executions."""
    with connect() as client:
        found = client.queues()
    write_list(found, COLUMNS, output)


@app.command()
def queue(  # noqa: PLR0917  one parameter per option
    name: Annotated[str, typer.Argument(metavar="QUEUE", help="Queue name.")],
    create: Annotated[bool, typer.Option("--create", help="Create it.")] = False,
    pause: Annotated[
        bool | None, typer.Option("--pause/--resume", help="Pause or resume it; running executions continue.")
    ] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Pool of the workers that serve it.")] = None,
    priority: Annotated[
        int | None, typer.Option(metavar="N", min=-100, max=100, help="Add this to the priority of its jobs.")
    ] = None,
    max_concurrency: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Limit of concurrent executions.")
    ] = None,
    no_limit: Annotated[bool, typer.Option("--no-limit", help="Remove the limit of concurrent executions.")] = False,
    aging: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Waiting this long counts as one step of priority.")
    ] = None,
    team: Annotated[
        str | None, typer.Option(metavar="TEAM", help='Accept only jobs of members of this team; "" accepts all.')
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete it if no job ever used it.")] = False,
    yes: YesOption = False,
    output: ResultFormatOption = None,
) -> None:
    """Show a queue; staff can create, tune, pause, resume or delete it.

    \b
    punctual queue batch --create --max-concurrency 4 --priority -5
    punctual queue batch --pause
    punctual queue gpu --team vision
    """
    if no_limit and max_concurrency is not None:
        raise UsageError("--no-limit cannot be combined with --max-concurrency.")
    fields: dict[str, object] = omit_none(
        paused=pause,
        pool=pool,
        priority=priority,
        max_concurrency=max_concurrency,
        aging_seconds=None if aging is None else parse_duration(aging),
    )
    if no_limit:
        fields["max_concurrency"] = None
    if team is not None:
        fields["team"] = team or None
    if delete and (create or fields):
        raise UsageError("--delete cannot be combined with a change.")
    with connect() as client:
        if create:
            created = client.create_queue(name, fields)
            write_message(f"Created the queue {created.name}.")
            write_resource(created.raw, output)
            return
        known = _find_queue(client, name)
        if delete:
            confirm(f"Delete the queue {known.name}?", yes=yes)
            client.delete_queue(known.id)
            write_message(f"Deleted {known.name}.")
        elif fields:
            changed = client.edit_queue(known.id, fields)
            write_message(f"The queue {changed.name} is {'paused' if changed.paused else 'open'}.")
            write_resource(changed.raw, output)
        else:
            write_object(known.raw, output or Format.TABLE)


def _find_queue(client: Client, word: str) -> Queue:
    queue = find_by_name(client.queues(limit=MAX_LISTED), word)
    if queue is None:
        raise unknown_name("queue", word, "queues")
    return queue
