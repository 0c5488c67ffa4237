"""`workers`: where jobs run."""

from __future__ import annotations

from cli.app import app, connect
from cli.commands.options import FormatOption
from cli.terminal import Format, say, shown_time, write_json, write_table


@app.command()
def workers(output: FormatOption = Format.TABLE) -> None:
    """List workers: what each runs of what it could, and how busy its machine was when it said so."""
    with connect() as client:
        found = client.workers()
    if output is Format.JSON:
        write_json([worker.raw for worker in found])
        return
    rows = [
        (
            worker.id,
            worker.name,
            f"{worker.status}, refuses work" if worker.refusal else worker.status,
            worker.host,
            worker.pool,
            f"{_shown(worker.runs)}/{_shown(worker.slots)}",
            _shown(worker.load),
            shown_time(worker.used_at),
            worker.able_to(),
        )
        for worker in found
    ]
    write_table(("ID", "NAME", "STATUS", "HOST", "POOL", "SLOTS", "LOAD", "AS OF", "CAPABILITIES"), rows)
    for worker in found:
        if worker.refusal:
            say(f"{worker.name} refuses work. {worker.refusal}")


def _shown(value: float | None) -> str:
    return "-" if value is None else str(value)
