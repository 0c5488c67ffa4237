"""`audit`: whether every instant that was due is accounted for (exit code 1 if not), and who changed what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.answers import JsonObject, as_object, as_objects
from cli.app import connect, group, resolve_job
from cli.commands.options import FormatOption, JobOption, LimitOption
from cli.results import Column, Format, field, moment, write_data, write_fields, write_list, write_rows
from cli.terminal import say
from cli.values import parse_moment

if TYPE_CHECKING:
    from cli.audit_records import Change

EXIT_DIFFERENCES = 1


COLUMNS: tuple[Column[Change], ...] = (
    Column("AT", moment("at")),
    Column("WHO", field("actor")),
    Column("ACTION", field("action")),
    Column("NAME", field("object_name")),
    Column("WHAT CHANGED", lambda change: change.differences()),
    Column("VIA", field("via"), wide=True),
    Column("FROM", field("address"), wide=True),
    Column("TOKEN", field("token"), wide=True),
    Column("OWNER", field("owner"), wide=True, differing=True),
    Column("OBJECT", field("object_id"), wide=True),
)

audit_app = group("audit", help="Check that everything fired, and see who changed what.")


@audit_app.command()
def changes(  # noqa: PLR0917  each is an option of the command line
    actor: Annotated[str | None, typer.Option(metavar="USER", help="Only what this user did.")] = None,
    thing: Annotated[
        str | None, typer.Option("--object", metavar="ID", help="Only this: the id of anything, or a job's name.")
    ] = None,
    action: Annotated[str | None, typer.Option(metavar="ACTION", help="Only this: job.paused, or all of job.")] = None,
    owner: Annotated[str | None, typer.Option(metavar="USER", help="Only what is this user's (for staff).")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="A time, or how long ago: 7d.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="The same.")] = None,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """List who changed what, the newest first, with what was before and after."""
    from_, to = (None if word is None else parse_moment(word) for word in (since, until))
    whole = action is not None and "." in action
    with connect() as client:
        found = client.changes(
            actor=actor,
            action=action if whole else None,
            object_type=None if whole else action,
            object_id=thing if thing is None or thing.isdigit() else resolve_job(client, thing),
            owner=owner,
            from_=from_,
            to=to,
            limit=limit,
        )
    write_list(found, COLUMNS, output, nothing="No change matches.")


@audit_app.command()
def firings(
    first: Annotated[str, typer.Option("--from", metavar="TIME", help="A time, or how long ago: 1h.")],
    last: Annotated[str | None, typer.Option("--to", metavar="TIME", help="The same. Default: now.")] = None,
    job: JobOption = None,
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
            whole=(0, 2),
            output=output,
        )
