"""`workers`: where jobs run."""

from __future__ import annotations

from cli.app import app, connect
from cli.commands.options import FormatOption
from cli.terminal import Format, write_json, write_table


@app.command()
def workers(output: FormatOption = Format.TABLE) -> None:
    """List workers."""
    with connect() as client:
        found = client.workers()
    if output is Format.JSON:
        write_json([worker.raw for worker in found])
        return
    rows = [
        (
            worker.id,
            worker.name,
            worker.status,
            worker.host,
            worker.pool,
            "" if worker.slots is None else str(worker.slots),
            worker.able_to(),
        )
        for worker in found
    ]
    write_table(("ID", "NAME", "STATUS", "HOST", "POOL", "SLOTS", "CAPABILITIES"), rows)
