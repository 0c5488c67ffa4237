"""`explain`: why an execution waits."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.answers import as_objects
from cli.app import app, connect
from cli.commands.options import FormatOption, LookedAtArgument
from cli.meant import of_execution
from cli.results import Format, write_data, write_fields
from cli.terminal import write_result


@app.command()
def explain(
    execution: LookedAtArgument,
    every: Annotated[bool, typer.Option("--all", help="The open gates, too.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Tell why an execution waits: every gate before it that is closed."""
    with connect() as client:
        found = of_execution(client, execution, client.explain_execution)
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
