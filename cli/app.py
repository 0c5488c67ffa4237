"""The command line as a whole: its commands, its help, and the one client they share.

A command opens the client through `connect`, so that `--help` works without a server.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from cli.client import Client
from cli.config import load_config
from cli.errors import ClientError, UsageMistakeError
from cli.values import is_id

HELP = "Submit programs to Punctual, and see what became of them."

EPILOG = """\
The local stack: ./punctual up [--detach] · down · stack status · stack logs [process] · test

A worker on another machine: ./punctual worker --url … --token …

Exit codes: 0 done · 1 failed without a code of its own · 2 wrong usage · 3 the server cannot be reached or \
refuses the token · 4 the server refused the input · 5 the server failed · 124 waited too long · \
130 interrupted · 141 the reader left. With --wait, a program that failed gives its own code.

The server is that of --profile, else PUNCTUAL_URL with PUNCTUAL_TOKEN, else the profile PUNCTUAL_PROFILE, else the \
profile that login or profiles use chose, else the local stack.
"""


def connect() -> Client:
    config = load_config(os.environ)
    return Client(config.url, config.token)


def resolve_job(client: Client, word: str) -> str:
    """The id of a job that is named by its id or by its name."""
    if is_id(word):
        return word
    named = [job for job in client.jobs(name=word, limit=100) if job.name == word]
    if not named:
        raise ClientError(f"There is no job called {word!r}: ./punctual jobs lists them.")
    if len(named) > 1:
        raise ClientError(f"{len(named)} jobs are called {word!r}: name the job by its id.")
    return named[0].id


def resolve_worker(client: Client, word: str) -> str:
    """The id of a worker that is named by its id or by its name."""
    if is_id(word):
        return word
    named = [worker for worker in client.workers(limit=10_000) if worker.name == word]
    if len(named) != 1:
        which = "no worker is" if not named else f"{len(named)} workers are"
        raise ClientError(f"Of the workers, {which} called {word!r}: ./punctual workers lists them with their ids.")
    return named[0].id


def check_execution_id(word: str) -> str:
    if not is_id(word):
        raise UsageMistakeError(f"{word!r} is not the id of an execution: ./punctual executions lists them.")
    return word


app = typer.Typer(
    name="punctual",
    help=HELP,
    epilog=EPILOG,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _without_colour(wanted: bool) -> None:
    if wanted:
        # Everything that draws asks the environment, the help of the commands too.
        os.environ["NO_COLOR"] = "1"


def _choose_profile(name: str | None) -> None:
    if name is not None:
        # What is said with the command comes before what the environment says for all of them.
        os.environ["PUNCTUAL_PROFILE"] = name
        for variable in ("PUNCTUAL_URL", "PUNCTUAL_TOKEN"):
            os.environ.pop(variable, None)


@app.callback(invoke_without_command=True)
def show_help(
    context: typer.Context,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="No colours; as NO_COLOR.", callback=_without_colour, is_eager=True)
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", metavar="NAME", help="Which server is meant.", callback=_choose_profile, is_eager=True
        ),
    ] = None,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
