"""`queues`: where jobs wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.app import app, connect
from cli.commands.options import FormatOption
from cli.results import Column, Format, field, moment, write_list

if TYPE_CHECKING:
    from cli.records import Queue

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
