"""What every command is made with: where it is registered, the one client they share, and what people call things.

A command opens the client through `connect`, so that `--help` works without a server, and without reading all that
is needed to talk to one.
"""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup

from cli.config import load_config
from cli.errors import ClientError, UsageMistakeError
from cli.values import is_id

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

    from cli.client import Client
    from cli.records import Job

# So many of those that a name could mean are told.
MOST_NAMED = 10


class Group(TyperGroup):
    """Its help tells of every command in a whole sentence, however narrow the terminal."""

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, (command.help or "").partition("\n\n")[0]) for name, command in self.commands.items()]
            )


# The commands that were read so far; `cli.root` knows which there are.
app = typer.Typer(cls=Group, rich_markup_mode=None, add_completion=False)


def group(name: str, *, help: str) -> typer.Typer:
    made = typer.Typer(cls=Group, help=help, add_completion=False)
    app.add_typer(made, name=name)
    return made


def connect() -> Client:
    config = load_config(os.environ)
    return client_of(config.url, config.token)


def client_of(url: str, token: str) -> Client:
    # Half of the time that a command takes goes into reading this.
    from cli.client import Client  # noqa: PLC0415

    return Client(url, token)


def resolve_job(client: Client, word: str) -> str:
    """The id of a job that is named by its id or by its name."""
    return word if is_id(word) else find_named(client, word).id


def find_job(client: Client, word: str) -> Job:
    """The job itself, for who is asked or told about it."""
    return client.job(word) if is_id(word) else find_named(client, word)


def find_named(client: Client, word: str) -> Job:
    named = [job for job in client.jobs(name=word, limit=100) if job.name == word]
    if not named:
        raise ClientError(f"There is no job called {word!r}: ./punctual jobs lists them.")
    if len({job.raw.get("owner") for job in named}) > 1:
        # Whoever shares a job of the same name with one does not change what one's own commands mean.
        owner = client.owner()
        named = [job for job in named if job.raw.get("owner") == owner] or named
    if len(named) > 1:
        whose = [f"{job.id} of {job.raw.get('owner') or 'nobody'}" for job in named[:MOST_NAMED]]
        rest = ["…"] if len(named) > MOST_NAMED else []
        raise ClientError(f"{len(named)} jobs are called {word!r}, name it by its id: {', '.join([*whose, *rest])}")
    return named[0]


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
        raise UsageMistakeError(
            f"{word!r} is not the id of an execution: ./punctual executions --job {quote(word)} lists those of a job."
        )
    return word
