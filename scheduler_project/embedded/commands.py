"""`./punctual up`, `down` and `stack`: the commands of the local stack.

Every problem leaves as one sentence and a non-zero exit; PUNCTUAL_TRACEBACK=1 shows where it came from.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from scheduler_project.embedded.console import Console
from scheduler_project.embedded.down import down as stop_stack
from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.logs import show_logs
from scheduler_project.embedded.managing import manage as run_manage
from scheduler_project.embedded.problems import StackProblem, describe_os_error
from scheduler_project.embedded.status import show_status
from scheduler_project.embedded.up import up as start_stack

INTERRUPTED = 130

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
stack = typer.Typer(no_args_is_help=True, help="Look at the local stack.")
app.add_typer(stack, name="stack")


@app.command()
def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Leave it running and return.")] = False,
) -> None:
    """Start Punctual with its own PostgreSQL, Valkey and SeaweedFS on this machine, and run a first job."""
    start_stack(Layout.from_environment(os.environ), os.environ, Console(), detach=detach)


@app.command()
def down() -> None:
    """Stop everything that `up` started."""
    stop_stack(Layout.from_environment(os.environ), Console())


@stack.command()
def status() -> None:
    """Show what runs; the exit code is not zero if something does not."""
    if not show_status(Layout.from_environment(os.environ), Console()):
        raise typer.Exit(1)


@stack.command()
def logs(
    process: Annotated[str | None, typer.Argument(help="Only this process.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of each.")] = 20,
) -> None:
    """Show the last lines of the processes' logs."""
    show_logs(Layout.from_environment(os.environ), Console(), process=process, lines=lines, follow=follow)


@stack.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    options_metavar="",
)
def manage(context: typer.Context) -> None:
    """Run a command of manage.py on the stack: `stack manage create_worker_token --owner admin`."""
    run_manage(Layout.from_environment(os.environ), context.args)


def main() -> None:
    try:
        app(prog_name="./punctual", standalone_mode=True)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if os.environ.get("PUNCTUAL_TRACEBACK") == "1":
            raise
        Console().problem(_as_problem(error))
        sys.exit(1)


def _as_problem(error: Exception) -> StackProblem:
    if isinstance(error, StackProblem):
        return error
    if isinstance(error, OSError):
        return describe_os_error(error, Layout.from_environment(os.environ).var)
    return StackProblem(
        f"Something unforeseen happened ({type(error).__name__}: {error}): "
        "set PUNCTUAL_TRACEBACK=1 and run this again to see where, then report it."
    )
