"""`audit`: verify that everything fired and ran as promised, and list who changed what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from punctual_cli.app import add_command_group, connect, resolve_job_id
from punctual_cli.argument_parsing import parse_time
from punctual_cli.commands.options import FormatOption, JobOption, LimitOption
from punctual_cli.output.results import (
    Column,
    Format,
    raw_field,
    time_field,
    write_data,
    write_fields,
    write_list,
    write_rows,
)
from punctual_cli.output.terminal import write_message
from punctual_client.json_fields import JsonObject, as_object, as_objects

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.audit import AuditEntry

EXIT_DIFFERENCES = 1
COLUMNS: tuple[Column[AuditEntry], ...] = (
    Column("AT", time_field("at")),
    Column("WHO", raw_field("actor")),
    Column("ACTION", raw_field("action")),
    Column("NAME", raw_field("object_name")),
    Column("WHAT CHANGED", lambda entry: entry.differences),
    Column("VIA", raw_field("via"), wide=True),
    Column("FROM", raw_field("address"), wide=True),
    Column("TOKEN", raw_field("token"), wide=True),
    Column("OWNER", raw_field("owner"), wide=True, shown_if_varied=True),
    Column("OBJECT", raw_field("object_id"), wide=True),
)

audit_app = add_command_group(
    "audit", help="Verify that everything fired and ran as promised, and see who changed what."
)


@audit_app.command()
def changes(  # noqa: PLR0917  one parameter per option
    actor: Annotated[str | None, typer.Option(metavar="USER", help="Filter by the user who made the change.")] = None,
    target: Annotated[
        str | None, typer.Option("--object", metavar="ID", help="Filter by object: the id of anything, or a job name.")
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="ACTION", help="Filter by action, such as job.paused, or job for all of them.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="USER", help="Filter by the owner of the object (staff).")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only changes since then; 7d is a week ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only changes until then.")] = None,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """List changes with actor, old and new values, newest first."""
    from_, to = (None if word is None else parse_time(word) for word in (since, until))
    is_full_action = action is not None and "." in action
    with connect() as client:
        found = client.changes(
            actor=actor,
            action=action if is_full_action else None,
            object_type=None if is_full_action else action,
            object_id=target if target is None or target.isdigit() else resolve_job_id(client, target),
            owner=owner,
            from_=from_,
            to=to,
            limit=limit,
        )
    write_list(found, COLUMNS, output, if_empty="No change matches.")


FromOption = Annotated[str, typer.Option("--from", metavar="TIME", help="Start of the range; 1h is an hour ago.")]
ToOption = Annotated[str | None, typer.Option("--to", metavar="TIME", help="End of the range. Default: now.")]


@audit_app.command()
def attempts(
    from_word: FromOption, to_word: ToOption = None, job: JobOption = None, output: FormatOption = Format.TABLE
) -> None:
    """Verify that no execution ran twice at once, limits held and nothing waits without a reason.

    Exit code 1 if a promise was broken.
    """
    time_range = _parse_range(from_word, to_word)
    with connect() as client:
        found = client.audit_attempts(**time_range, job_id=_resolve_job_filter(client, job))
    _write_audit(
        found, _write_attempts, output, kept="Every promise was kept.", broken="A promise was broken: see above."
    )


@audit_app.command()
def firings(
    from_word: FromOption, to_word: ToOption = None, job: JobOption = None, output: FormatOption = Format.TABLE
) -> None:
    """Compare the instants that should have fired with those that did. Exit code 1 on an unexplained difference."""
    time_range = _parse_range(from_word, to_word)
    with connect() as client:
        found = client.audit_firings(**time_range, job_id=_resolve_job_filter(client, job))
    broken = "There are unexplained differences."
    _write_audit(found, _write_firings, output, kept="Every instant is accounted for.", broken=broken)


class _TimeRange(TypedDict):
    from_: str
    to: str | None


def _parse_range(from_: str, to: str | None) -> _TimeRange:
    return _TimeRange(from_=parse_time(from_), to=None if to is None else parse_time(to))


def _resolve_job_filter(client: Client, job: str | None) -> str | None:
    return None if job is None else resolve_job_id(client, job)


def _write_audit(
    found: JsonObject, write: Callable[[JsonObject, Format], None], output: Format, *, kept: str, broken: str
) -> None:
    clean = found.get("clean") is True
    if output in (Format.JSON, Format.YAML):
        write_data(found, output)
    else:
        write(found, output)
        write_message(kept if clean else broken)
    if not clean:
        raise typer.Exit(EXIT_DIFFERENCES)


def _write_attempts(found: JsonObject, output: Format) -> None:
    _write_fields(found)
    _write_differences(found, ("what", "execution_id", "at", "active", "limit"), output)


def _write_firings(found: JsonObject, output: Format) -> None:
    lateness = found.get("lateness_ms")
    percentiles = {} if lateness is None else as_object(lateness)
    _write_fields(found, [(f"lateness {name}", f"{value} ms") for name, value in percentiles.items()])
    _write_differences(found, ("what", "count", "schedule_id", "instant"), output)


def _write_fields(found: JsonObject, more: Sequence[tuple[str, str]] = ()) -> None:
    rows = [(name, str(value)) for name, value in found.items() if not isinstance(value, dict | list | None)]
    write_fields([*rows, *more])


def _write_differences(found: JsonObject, keys: Sequence[str], output: Format) -> None:
    differences = as_objects(found.get("differences"))
    if differences:
        titles = ["DIFFERENCE", *(key.removesuffix("_id").upper() for key in keys[1:])]
        rows = [tuple(_format_cell(each.get(key)) for key in keys) for each in differences]
        write_rows(titles, rows, whole=(0, 2), output=output)


def _format_cell(value: object) -> str:
    return "" if value is None else str(value)
