"""`calendars` and `calendar`: dates on which schedules do not fire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import MAX_LISTED, app, connect, find_by_name, unknown_name
from punctual_cli.argument_parsing import is_uuid, parse_date
from punctual_cli.commands.options import FormatOption, LimitOption, ResultFormatOption, YesOption
from punctual_cli.output.results import Column, Format, raw_field, time_field, write_list, write_resource
from punctual_cli.output.terminal import confirm, write_message, write_result
from punctual_client.errors import PROGRAM, UsageError

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.calendars import Calendar

COLUMNS: tuple[Column[Calendar], ...] = (
    Column("ID", raw_field("id"), whole=True),
    Column("NAME", raw_field("name")),
    Column("DATES", lambda calendar: len(calendar.dates)),
    Column("USED BY", raw_field("used_by")),
    Column("OWNER", raw_field("owner"), wide=True, shown_if_varied=True),
    Column("CREATED", time_field("created_at"), wide=True),
    Column("UPDATED", time_field("updated_at"), wide=True),
)


@app.command()
def calendars(limit: LimitOption = 50, output: FormatOption = Format.TABLE) -> None:
    """List calendars."""
    with connect() as client:
        found = client.calendars(limit=limit)
    write_list(found, COLUMNS, output, if_empty=f"No calendars yet: {PROGRAM} calendar NAME --date DATE makes one.")


@app.command()
def calendar(  # noqa: PLR0917  one parameter per option
    name: Annotated[str, typer.Argument(metavar="CALENDAR", help="Calendar name or id.")],
    date: Annotated[
        list[str] | None, typer.Option(metavar="DATE", help="Set all its dates, or create it with them (repeatable).")
    ] = None,
    add: Annotated[list[str] | None, typer.Option(metavar="DATE", help="Add a date (repeatable).")] = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="DATE", help="Remove a date (repeatable).")] = None,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="Rename it.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete it if no schedule uses it.")] = False,
    yes: YesOption = False,
    output: ResultFormatOption = None,
) -> None:
    """Show the dates of a calendar, or create, edit or delete it. Schedules that use it change at once."""
    dates, added, removed = ([parse_date(word) for word in words or []] for words in (date, add, remove))
    if dates and (added or removed):
        raise UsageError("--date cannot be combined with --add or --remove.")
    if delete and (dates or added or removed or rename):
        raise UsageError("--delete cannot be combined with a change.")
    with connect() as client:
        found = _find_calendar(client, name)
        if delete:
            known = _require_calendar(found, name)
            confirm(f"Delete the calendar {known.name}?", yes=yes)
            client.delete_calendar(known.id)
            write_message(f"Deleted {known.name}.")
        elif found is None and (dates or added):
            created = client.create_calendar(rename or name, sorted({*dates, *added}))
            write_message(f"Created the calendar {created.name} with {len(created.dates)} dates.")
            write_resource(created.raw, output)
        elif dates or added or removed or rename:
            known = _require_calendar(found, name)
            wanted = sorted(dates or ({*known.dates, *added} - set(removed)))
            changed = client.edit_calendar(known.id, name=rename, dates=wanted if wanted != list(known.dates) else None)
            write_message(
                f"The calendar {changed.name} has {len(changed.dates)} dates; {changed.used_by} schedules use it."
            )
            write_resource(changed.raw, output)
        elif output is not None:
            write_resource(_require_calendar(found, name).raw, output)
        else:
            for day in _require_calendar(found, name).dates:
                write_result(day)


def _find_calendar(client: Client, word: str) -> Calendar | None:
    if is_uuid(word):
        return client.calendar(word)
    return find_by_name(client.calendars(limit=MAX_LISTED), word)


def _require_calendar(found: Calendar | None, word: str) -> Calendar:
    if found is None:
        raise unknown_name("calendar", word, "calendars")
    return found
