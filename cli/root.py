"""The command line as a whole: its help, its options, and commands that are read when they are meant.

To read all the commands takes a second, and one of them a fraction of that.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from cli import VERSION
from cli.app import Group, app
from cli.commands import ENTRIES, SECTIONS
from cli.completion import profile_names

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

HELP = "Submit programs to Punctual, and see what became of them."

EPILOG = """\
The local stack: ./punctual up [--detach] · down · stack status · stack logs [process] · test

A worker on another machine: ./punctual worker --url … --token …

Exit codes: 0 done · 1 failed without a code of its own · 2 wrong usage · 3 the server cannot be reached or \
refuses the token · 4 the server refused the input, or you may not · 5 the server failed · 124 waited too long · \
130 interrupted · 141 the reader left. With --wait, a program that failed gives its own code.

The server is that of --profile, else PUNCTUAL_URL with PUNCTUAL_TOKEN, else the profile PUNCTUAL_PROFILE, else the \
profile that login or profiles use chose, else the local stack.
"""


class Root(Group):
    """Has of every command the line that tells of it, until it is meant."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, short_help=entry.summary) for name, entry in ENTRIES.items()}

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else read_command(name), rest

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in section.items()])


def read_command(name: str) -> Command:
    """The command itself, and not those beside it in its module: to make one of its options takes a while, too."""
    import_module(f"cli.commands.{ENTRIES[name].module}")
    alone = typer.Typer(cls=Group, rich_markup_mode=None, add_completion=False)
    alone.registered_groups = [each for each in app.registered_groups if each.name == name]
    alone.registered_commands = [
        each for each in app.registered_commands if name in (each.name, getattr(each.callback, "__name__", None))
    ]
    return typer.main.get_group(alone).commands[name]


root = typer.Typer(
    name="punctual",
    cls=Root,
    help=HELP,
    epilog=EPILOG,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _without_colour(wanted: bool) -> None:
    if wanted:
        # Everything that draws asks the environment.
        os.environ["NO_COLOR"] = "1"


def _choose_profile(name: str | None) -> None:
    if name is not None:
        # What is said with the command comes before what the environment says for all of them.
        os.environ["PUNCTUAL_PROFILE"] = name
        for variable in ("PUNCTUAL_URL", "PUNCTUAL_TOKEN"):
            os.environ.pop(variable, None)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"punctual {VERSION}")
        raise typer.Exit


@root.callback(invoke_without_command=True)
def show_help(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version of this command, and end.", callback=_show_version, is_eager=True
        ),
    ] = False,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="No colours; as NO_COLOR.", callback=_without_colour, is_eager=True)
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="Which server is meant.",
            callback=_choose_profile,
            is_eager=True,
            autocompletion=profile_names,
        ),
    ] = None,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
