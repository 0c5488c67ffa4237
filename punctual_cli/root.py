"""The root of the command line: global options, the overview, and commands that are imported on demand.

Importing all commands takes a second, one of them a fraction of that.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from punctual_cli import VERSION
from punctual_cli.app import CommandGroup, app
from punctual_cli.commands import ENTRIES, SECTIONS, STACK_COMMANDS, WRAPPER_COMMANDS
from punctual_cli.commands.completion import complete_profile_name
from punctual_client.errors import IN_CHECKOUT, PROGRAM, UsageError

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

HELP = "Submit programs to Punctual, schedule them, and follow their executions."

EPILOG = f"""\
The server is chosen in this order: --profile; PUNCTUAL_URL with PUNCTUAL_TOKEN; the profile PUNCTUAL_PROFILE; the \
profile chosen by login or `profiles use`; the local stack.

Exit codes: 0 success · 1 failure · 2 wrong usage · 3 server unreachable or token refused · 4 request refused · \
5 server failure · 124 timeout while waiting · 130 interrupted · 141 output closed. With --wait: the exit code of \
a program that failed.

Every command has its own help: {PROGRAM} submit --help
"""


class RootGroup(CommandGroup):
    """Knows the summaries of all commands, and imports the one that runs."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, short_help=entry.summary) for name, entry in ENTRIES.items()}
        if IN_CHECKOUT:
            stack = {name: TyperCommand(name, short_help=summary) for name, summary in STACK_COMMANDS.items()}
            self.commands |= {
                name: TyperGroup(name=name, commands=dict(stack) if name == "stack" else {}, short_help=summary)
                for name, summary in WRAPPER_COMMANDS.items()
            }

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name in ENTRIES:
            return name, load_command(name), rest
        if name is not None and not ctx.resilient_parsing:
            raise UsageError(f"{name} must be the first word: {PROGRAM} {name}")
        return name, command, rest

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        sections = {title: {name: entry.summary for name, entry in each.items()} for title, each in SECTIONS.items()}
        if IN_CHECKOUT:
            sections["This checkout"] = WRAPPER_COMMANDS
        for title, summaries in sections.items():
            with formatter.section(title):
                formatter.write_dl(list(summaries.items()))


def load_command(name: str) -> Command:
    """Import a command; build only it, since building the options of its whole module takes longer."""
    import_module(f"punctual_cli.commands.{ENTRIES[name].module}")
    alone = typer.Typer(cls=CommandGroup, rich_markup_mode=None, add_completion=False)
    alone.registered_groups = [each for each in app.registered_groups if each.name == name]
    alone.registered_commands = [
        each for each in app.registered_commands if name in (each.name, getattr(each.callback, "__name__", None))
    ]
    return typer.main.get_group(alone).commands[name]


root = typer.Typer(
    name="punctual",
    cls=RootGroup,
    help=HELP,
    epilog=EPILOG,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _disable_colour(wanted: bool) -> None:
    if wanted:
        os.environ["NO_COLOR"] = "1"


def _choose_profile(name: str | None) -> None:
    if name is not None:
        # The option takes precedence over all variables.
        os.environ["PUNCTUAL_PROFILE"] = name
        for variable in ("PUNCTUAL_URL", "PUNCTUAL_TOKEN"):
            os.environ.pop(variable, None)


def _show_version(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        typer.echo(f"punctual {VERSION}")
        raise typer.Exit


@root.callback(invoke_without_command=True)
def show_help(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
    no_color: Annotated[
        bool,
        typer.Option(
            "--no-color", help="Do not use colours, as with NO_COLOR.", callback=_disable_colour, is_eager=True
        ),
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="Use the server of this profile.",
            callback=_choose_profile,
            is_eager=True,
            autocompletion=complete_profile_name,
        ),
    ] = None,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
