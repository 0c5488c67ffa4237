"""`calendars` and `calendar`: dates on which schedules do not fire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import app, connect
from cli.commands.options import AnswerOption, FormatOption, LimitOption, YesOption
from cli.errors import ClientError, UsageMistakeError
from cli.results import Column, Format, field, moment, write_answer, write_list
from cli.terminal import confirm, say, write_result
from cli.values import is_id, parse_date

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Calendar

MOST_CALENDARS = 10_000
COLUMNS: tuple[Column[Calendar], ...] = (
    Column("ID", field("id"), whole=True),
    Column("NAME", field("name")),
    Column("DATES", lambda calendar: len(calendar.dates)),
    Column("USED BY", field("used_by")),
    Column("OWNER", field("owner"), wide=True, differing=True),
    Column("CREATED", moment("created_at"), wide=True),
    Column("UPDATED", moment("updated_at"), wide=True),
)


@app.command()
def calendars(limit: LimitOption = 50, output: FormatOption = Format.TABLE) -> None:
    """List calendars."""
    with connect() as client:
        found = client.calendars(limit=limit)
    write_list(found, COLUMNS, output, nothing="No calendars yet: ./punctual calendar NAME --date DATE makes one.")


@app.command()
def calendar(  # noqa: PLR0917  each is an option of the command line
    name: Annotated[str, typer.Argument(metavar="CALENDAR", help="Its name, or its id.")],
    date: Annotated[
        list[str] | None, typer.Option(metavar="DATE", help="All of its dates from now on, or of a new one (repeat).")
    ] = None,
    add: Annotated[list[str] | None, typer.Option(metavar="DATE", help="One more date (repeat).")] = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="DATE", help="A date less (repeat).")] = None,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="Another name.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete it, if no schedule uses it.")] = False,
    yes: YesOption = False,
    output: AnswerOption = None,
) -> None:
    """Print the dates of a calendar, or make or change it. Schedules that use it follow at once."""
    dates, more, less = ([parse_date(word) for word in words or []] for words in (date, add, remove))
    if dates and (more or less):
        raise UsageMistakeError("--date has no meaning beside --add or --remove.")
    if delete and (dates or more or less or rename):
        raise UsageMistakeError("--delete has no meaning beside a change.")
    with connect() as client:
        found = _find(client, name)
        if delete:
            known = _known(found, name)
            confirm(f"Delete the calendar {known.name}?", yes=yes)
            client.delete_calendar(known.id)
            say(f"Deleted {known.name}.")
        elif found is None and (dates or more):
            made = client.create_calendar(rename or name, sorted({*dates, *more}))
            say(f"Made the calendar {made.name} of {len(made.dates)} dates.")
            write_answer(made.raw, output)
        elif dates or more or less or rename:
            known = _known(found, name)
            wanted = sorted(dates or ({*known.dates, *more} - set(less)))
            changed = client.edit_calendar(known.id, name=rename, dates=wanted if wanted != list(known.dates) else None)
            say(f"The calendar {changed.name} has {len(changed.dates)} dates; {changed.used_by} schedules use it.")
            write_answer(changed.raw, output)
        elif output is not None:
            write_answer(_known(found, name).raw, output)
        else:
            for day in _known(found, name).dates:
                write_result(day)


def _find(client: Client, word: str) -> Calendar | None:
    if is_id(word):
        return client.calendar(word)
    return next((each for each in client.calendars(limit=MOST_CALENDARS) if each.name == word), None)


def _known(found: Calendar | None, word: str) -> Calendar:
    if found is None:
        raise ClientError(f"There is no calendar called {word!r}: ./punctual calendars lists them.")
    return found
