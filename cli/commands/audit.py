"""`audit`: whether every instant that was due is accounted for; exit code 1 if not."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.answers import JsonObject, as_object, as_objects
from cli.app import app, connect, resolve_job
from cli.commands.options import FormatOption
from cli.results import Format, write_data, write_fields, write_rows
from cli.terminal import say
from cli.values import parse_moment

EXIT_DIFFERENCES = 1


@app.command()
def audit(
    first: Annotated[str, typer.Option("--from", metavar="TIME", help="A time, or how long ago: 1h.")],
    last: Annotated[str | None, typer.Option("--to", metavar="TIME", help="The same. Default: now.")] = None,
    job: Annotated[str | None, typer.Option(help="Only the schedules of this job (id or name).")] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Compare what should have fired with what did. Exit code 1 if a difference is not explained."""
    from_, to = parse_moment(first), None if last is None else parse_moment(last)
    with connect() as client:
        found = client.audit_firings(
            from_=from_, to=to, job_id=None if job is None else resolve_job(client, job)
        )  # fmt: skip
    clean = found.get("clean") is True
    if output in (Format.JSON, Format.YAML):
        write_data(found, output)
    else:
        _write_report(found, output)
        say("Every instant is accounted for." if clean else "There are differences that nothing explains.")
    if not clean:
        raise typer.Exit(EXIT_DIFFERENCES)


def _write_report(found: JsonObject, output: Format) -> None:
    rows = [(name, str(value)) for name, value in found.items() if not isinstance(value, dict | list | None)]
    lateness = found.get("lateness_ms")
    if lateness is not None:
        rows += [(f"lateness {name}", f"{value} ms") for name, value in as_object(lateness).items()]
    write_fields([row for row in rows if row[0] != "lateness_ms"])
    differences = as_objects(found.get("differences"))
    if differences:
        write_rows(
            ("DIFFERENCE", "COUNT", "SCHEDULE", "INSTANT"),
            [
                tuple(str(each.get(key) or "") for key in ("what", "count", "schedule_id", "instant"))
                for each in differences
            ],
            output=output,
        )
