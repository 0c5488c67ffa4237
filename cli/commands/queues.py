"""`queues`: where jobs wait."""

from __future__ import annotations

from cli.app import app, connect
from cli.commands.options import FormatOption
from cli.terminal import Format, write_json, write_table


@app.command()
def queues(output: FormatOption = Format.TABLE) -> None:
    """List queues: whether each is open or paused, who serves it, and how many of it run at once."""
    with connect() as client:
        found = client.queues()
    if output is Format.JSON:
        write_json([queue.raw for queue in found])
        return
    rows = [
        (
            queue.name,
            "paused" if queue.paused else "open",
            queue.pool,
            str(queue.priority),
            "" if queue.max_concurrency is None else str(queue.max_concurrency),
        )
        for queue in found
    ]
    write_table(("NAME", "STATE", "POOL", "PRIORITY", "AT MOST"), rows)
