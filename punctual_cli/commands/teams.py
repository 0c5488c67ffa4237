"""`teams` and `team`: users who share jobs with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import MAX_LISTED, app, connect, find_by_name
from punctual_cli.commands.options import FormatOption, LimitOption, ResultFormatOption, YesOption
from punctual_cli.output.results import Column, Format, raw_field, time_field, write_list, write_resource
from punctual_cli.output.terminal import confirm, write_message, write_result
from punctual_client.errors import PROGRAM, ApiError, UsageError

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.teams import Team

COLUMNS: tuple[Column[Team], ...] = (
    Column("NAME", raw_field("name"), whole=True),
    Column("MEMBERS", lambda team: ", ".join(team.members)),
    Column("ID", raw_field("id"), wide=True),
    Column("CREATED", time_field("created_at"), wide=True),
    Column("UPDATED", time_field("updated_at"), wide=True),
)


@app.command()
def teams(limit: LimitOption = 50, output: FormatOption = Format.TABLE) -> None:
    """List your teams; staff see all teams."""
    with connect() as client:
        found = client.teams(limit=limit)
    if_empty = f"You are in no team: staff can create one with {PROGRAM} team NAME --create."
    write_list(found, COLUMNS, output, if_empty=if_empty)


@app.command()
def team(  # noqa: PLR0917  one parameter per option
    name: Annotated[str, typer.Argument(metavar="TEAM", help="Team name.")],
    create: Annotated[bool, typer.Option("--create", help="Create it.")] = False,
    add: Annotated[list[str] | None, typer.Option(metavar="USER", help="Add a member (repeatable).")] = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="USER", help="Remove a member (repeatable).")] = None,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="Rename it.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete it; its jobs are no longer shared.")] = False,
    yes: YesOption = False,
    output: ResultFormatOption = None,
) -> None:
    """Show the members of a team; staff can create, edit or delete it.

    \b
    punctual team payments --create --add alice --add bob
    punctual submit report.py --cron "0 3 * * *" --team payments
    """
    if delete and (create or add or remove or rename):
        raise UsageError("--delete cannot be combined with a change.")
    if create and (remove or rename):
        raise UsageError("--remove and --rename cannot be combined with --create.")
    with connect() as client:
        if create:
            created = client.create_team(name, sorted(set(add or [])))
            write_message(f"Created the team {created.name} with {_describe_member_count(created)}.")
            write_resource(created.raw, output)
            return
        known = _find_team(client, name)
        if delete:
            confirm(f"Delete the team {known.name}? Its jobs are then visible to their owners only.", yes=yes)
            client.delete_team(known.id)
            write_message(f"Deleted {known.name}.")
        elif add or remove or rename:
            known = client.team(known.id)
            members = _edited_members(known, add or [], remove or [])
            changed = client.edit_team(known.id, name=rename, members=members, tag=known.tag)
            write_message(f"The team {changed.name} has {_describe_member_count(changed)}.")
            write_resource(changed.raw, output)
        elif output is not None:
            write_resource(known.raw, output)
        else:
            for member in known.members:
                write_result(member)


def _edited_members(team: Team, add: list[str], remove: list[str]) -> list[str] | None:
    for name in remove:
        if name not in team.members:
            raise UsageError(f"{name!r} is not in the team {team.name}.")
    return sorted({*team.members, *add} - set(remove)) if add or remove else None


def _describe_member_count(team: Team) -> str:
    return "1 member" if len(team.members) == 1 else f"{len(team.members)} members"


def _find_team(client: Client, word: str) -> Team:
    team = find_by_name(client.teams(limit=MAX_LISTED), word)
    if team is None:
        raise ApiError(f"You are in no team called {word!r}: {PROGRAM} teams lists yours.")
    return team
