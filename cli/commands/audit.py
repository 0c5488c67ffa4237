"""`audit`: whether every instant that was due is accounted for; exit code 1 if not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from cli.answers import JsonObject, as_object, as_objects
from cli.app import app, connect, resolve_job
from cli.commands.options import FormatOption
from cli.errors import UsageMistakeError
from cli.terminal import Format, say, write_json, write_table
from cli.values import parse_duration, parse_instant

EXIT_DIFFERENCES = 1


@app.command()
def audit(
    first: Annotated[str, typer.Option("--from", metavar="TIME", help="A time, or how long ago: 1h.")],
    last: Annotated[str | None, typer.Option("--to", metavar="TIME", help="The same. Default: now.")] = None,
    job: Annotated[str | None, typer.Option(help="Only the schedules of this job (id or name).")] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Compare what should have fired with what did. Exit code 1 if a difference is not explained."""
    now = datetime.now(UTC)
    from_, to = _instant(first, now), None if last is None else _instant(last, now)
    with connect() as client:
        found = client.audit_firings(
            from_=from_, to=to, job_id=None if job is None else resolve_job(client, job)
        )  # fmt: skip
    clean = found.get("clean") is True
    if output is Format.JSON:
        write_json(found)
    else:
        _write_report(found)
        say("Every instant is accounted for." if clean else "There are differences that nothing explains.")
    if not clean:
        raise typer.Exit(EXIT_DIFFERENCES)


def _instant(word: str, now: datetime) -> str:
    """`1h` is an hour ago; anything that is no duration is a time."""
    try:
        seconds = parse_duration(word)
    except UsageMistakeError:
        return parse_instant(word, None)
    return (now - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def _write_report(found: JsonObject) -> None:
    rows = [(name, str(value)) for name, value in found.items() if not isinstance(value, dict | list | None)]
    lateness = found.get("lateness_ms")
    if lateness is not None:
        rows += [(f"lateness {name}", f"{value} ms") for name, value in as_object(lateness).items()]
    write_table(("FIELD", "VALUE"), [row for row in rows if row[0] != "lateness_ms"])
    differences = as_objects(found.get("differences"))
    if differences:
        write_table(
            ("DIFFERENCE", "COUNT", "SCHEDULE", "INSTANT"),
            [
                tuple(str(each.get(key) or "") for key in ("what", "count", "schedule_id", "instant"))
                for each in differences
            ],
        )
