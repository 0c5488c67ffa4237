"""The commands of the local stack: `./punctual up`, `down` and `stack`.

Every error is printed as one sentence with a non-zero exit code; PUNCTUAL_TRACEBACK=1 prints the traceback.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from scheduler_project.localstack.commands.down import down as stop_stack
from scheduler_project.localstack.commands.down import is_anything_running
from scheduler_project.localstack.commands.logs import show_logs
from scheduler_project.localstack.commands.status import show_status
from scheduler_project.localstack.commands.up import up as start_stack
from scheduler_project.localstack.console import Console
from scheduler_project.localstack.errors import StackError, describe_os_error
from scheduler_project.localstack.layout import CHECKOUT, Layout
from scheduler_project.localstack.processes.spec import read_process_environment

INTERRUPTED_EXIT_CODE = 130

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
stack = typer.Typer(no_args_is_help=True, help="Inspect and manage the local stack.")
app.add_typer(stack, name="stack")


@app.command()
def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Keep it running and return.")] = False,
) -> None:
    """Start Punctual with its own PostgreSQL, Valkey and SeaweedFS on this machine, and run a first job."""
    start_stack(Layout.from_environment(os.environ), os.environ, Console(), detach=detach)


@app.command()
def down() -> None:
    """Stop everything that `up` started."""
    stop_stack(Layout.from_environment(os.environ), Console())


@stack.command()
def status() -> None:
    """Show the state of each process; exit with 1 if one is not running."""
    if not show_status(Layout.from_environment(os.environ), Console()):
        raise typer.Exit(1)


@stack.command()
def logs(
    process: Annotated[str | None, typer.Argument(help="Only this process.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Lines per process.")] = 20,
) -> None:
    """Show the last lines of the processes' logs."""
    show_logs(Layout.from_environment(os.environ), Console(), process=process, lines=lines, follow=follow)


@stack.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    options_metavar="",
)
def manage(context: typer.Context) -> None:
    """Run a manage.py command with the stack's configuration, e.g. `create_worker_token --owner admin --any-pool`."""
    layout = Layout.from_environment(os.environ)
    if not is_anything_running(layout):
        raise StackError("Nothing is running, so there is nothing to manage: start it with `./punctual up`.")
    command = [sys.executable, str(CHECKOUT / "manage.py"), *context.args]
    # Any process that reads Django's settings has the environment.
    os.execve(sys.executable, command, read_process_environment("web", layout.run))  # noqa: S606 - no shell is wanted


def main() -> None:
    try:
        app(prog_name="./punctual", standalone_mode=True)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_EXIT_CODE)
    except Exception as error:
        if os.environ.get("PUNCTUAL_TRACEBACK") == "1":
            raise
        Console().print_error(_to_stack_error(error))
        sys.exit(1)


def _to_stack_error(error: Exception) -> StackError:
    if isinstance(error, StackError):
        return error
    if isinstance(error, OSError):
        return describe_os_error(error, Layout.from_environment(os.environ).var)
    return StackError(
        f"Unexpected error ({type(error).__name__}: {error}): "
        "run this again with PUNCTUAL_TRACEBACK=1 for the traceback, and report it."
    )
