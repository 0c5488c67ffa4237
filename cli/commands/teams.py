"""`teams` and `team`: who shares jobs with whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import app, connect
from cli.commands.options import AnswerOption, FormatOption, LimitOption, YesOption
from cli.errors import ClientError, UsageMistakeError
from cli.results import Column, Format, field, moment, write_answer, write_list
from cli.terminal import confirm, say, write_result

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Team

MOST_TEAMS = 10_000
COLUMNS: tuple[Column[Team], ...] = (
    Column("NAME", field("name"), whole=True),
    Column("MEMBERS", lambda team: ", ".join(team.members)),
    Column("ID", field("id"), wide=True),
    Column("CREATED", moment("created_at"), wide=True),
    Column("UPDATED", moment("updated_at"), wide=True),
)


@app.command()
def teams(limit: LimitOption = 50, output: FormatOption = Format.TABLE) -> None:
    """List the teams that you are in; for staff, all of them."""
    with connect() as client:
        found = client.teams(limit=limit)
    write_list(
        found, COLUMNS, output, nothing="You are in no team: staff makes them with ./punctual team NAME --create."
    )


@app.command()
def team(  # noqa: PLR0917  each is an option of the command line
    name: Annotated[str, typer.Argument(metavar="TEAM", help="Its name.")],
    create: Annotated[bool, typer.Option("--create", help="Make it.")] = False,
    add: Annotated[list[str] | None, typer.Option(metavar="USER", help="One more member (repeat).")] = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="USER", help="A member less (repeat).")] = None,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="Another name.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete it; its jobs are shared no more.")] = False,
    yes: YesOption = False,
    output: AnswerOption = None,
) -> None:
    """Print the members of a team; as staff, make, fill or delete it.

    \b
    punctual team payments --create --add alice --add bob
    punctual submit report.py --cron "0 3 * * *" --team payments
    """
    if delete and (create or add or remove or rename):
        raise UsageMistakeError("--delete has no meaning beside a change.")
    if create and (remove or rename):
        raise UsageMistakeError("--remove and --rename have no meaning beside --create.")
    with connect() as client:
        if create:
            made = client.create_team(name, sorted(set(add or [])))
            say(f"Made the team {made.name} of {_counted(made)}.")
            write_answer(made.raw, output)
            return
        known = _find(client, name)
        if delete:
            confirm(f"Delete the team {known.name}? Its jobs are their owners' alone then.", yes=yes)
            client.delete_team(known.id)
            say(f"Deleted {known.name}.")
        elif add or remove or rename:
            known = client.team(known.id)
            members = _members(known, add or [], remove or [])
            changed = client.edit_team(known.id, name=rename, members=members, tag=known.tag)
            say(f"The team {changed.name} has {_counted(changed)}.")
            write_answer(changed.raw, output)
        elif output is not None:
            write_answer(known.raw, output)
        else:
            for member in known.members:
                write_result(member)


def _members(team: Team, add: list[str], remove: list[str]) -> list[str] | None:
    for name in remove:
        if name not in team.members:
            raise UsageMistakeError(f"{name!r} is not in the team {team.name}.")
    return sorted({*team.members, *add} - set(remove)) if add or remove else None


def _counted(team: Team) -> str:
    return "1 member" if len(team.members) == 1 else f"{len(team.members)} members"


def _find(client: Client, word: str) -> Team:
    for each in client.teams(limit=MOST_TEAMS):
        if word in (each.name, each.id):
            return each
    raise ClientError(f"There is no team called {word!r} that you are in: ./punctual teams lists them.")
