"""The registry of commands, the client they share, and the lookup of jobs and workers by name.

Commands open the client with `connect`, so that `--help` works without a server and without importing httpx.
"""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer
from typer.core import TyperGroup

from punctual_cli.argument_parsing import is_uuid
from punctual_client.config import load_config
from punctual_client.errors import PROGRAM, ApiError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer._click import Context, HelpFormatter
    from typer._click.shell_completion import CompletionItem

    from punctual_client.client import Client
    from punctual_client.resources.jobs import Job

MAX_CANDIDATES_LISTED = 10
MAX_LISTED = 10_000


class CommandGroup(TyperGroup):
    """A group whose help never shortens the summaries of its commands."""

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        # After an unknown command Typer would offer all commands again.
        return [] if ctx._protected_args else super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, (command.help or "").partition("\n\n")[0]) for name, command in self.commands.items()]
            )


# The commands imported so far; `punctual_cli.root` has the list of all.
app = typer.Typer(cls=CommandGroup, rich_markup_mode=None, add_completion=False)


def add_command_group(name: str, *, help: str) -> typer.Typer:
    group = typer.Typer(cls=CommandGroup, help=help, add_completion=False)
    app.add_typer(group, name=name)
    return group


def connect() -> Client:
    config = load_config(os.environ)
    return open_client(config.url, config.token)


def open_client(url: str, token: str) -> Client:
    # Importing httpx takes half of the time of a short command.
    from punctual_client.client import Client  # noqa: PLC0415

    return Client(url, token)


def resolve_job_id(client: Client, word: str) -> str:
    """Return the id of a job, given its id or its name."""
    return word if is_uuid(word) else find_job_by_name(client, word).id


def find_job(client: Client, word: str) -> Job:
    """Return a job, given its id or its name."""
    return client.job(word) if is_uuid(word) else find_job_by_name(client, word)


def find_job_by_name(client: Client, word: str) -> Job:
    named = [job for job in client.jobs(name=word, limit=100) if job.name == word]
    if not named:
        raise unknown_name("job", word, "jobs")
    if len({job.raw.get("owner") for job in named}) > 1:
        # The caller's own job wins over one of the same name that another user shares.
        owner = client.owner()
        named = [job for job in named if job.raw.get("owner") == owner] or named
    if len(named) > 1:
        candidates = [f"{job.id} of {job.raw.get('owner') or 'no owner'}" for job in named[:MAX_CANDIDATES_LISTED]]
        rest = ["…"] if len(named) > MAX_CANDIDATES_LISTED else []
        raise ApiError(f"{len(named)} jobs are called {word!r}, use an id: {', '.join([*candidates, *rest])}")
    return named[0]


def resolve_worker_id(client: Client, word: str) -> str:
    """Return the id of a worker, given its id or its name."""
    if is_uuid(word):
        return word
    named = [worker for worker in client.workers(limit=MAX_LISTED) if worker.name == word]
    if not named:
        raise unknown_name("worker", word, "workers")
    if len(named) > 1:
        raise ApiError(f"{len(named)} workers are called {word!r}: use an id, {PROGRAM} workers lists them.")
    return named[0].id


class _Named(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def id(self) -> str: ...


_NamedItem = TypeVar("_NamedItem", bound=_Named)


def find_by_name(items: Sequence[_NamedItem], word: str) -> _NamedItem | None:
    """Return the item with this name or id."""
    return next((item for item in items if word in (item.name, item.id)), None)


def only_match(named: Sequence[_NamedItem], kind: str, word: str) -> _NamedItem | None:
    """Return the only item of a list that is already filtered by name; refuse to choose between several."""
    if len(named) > 1:
        raise ApiError(f"Several owners have a {kind} called {word!r}: use its id.")
    return named[0] if named else None


def unknown_name(kind: str, word: str, list_command: str) -> ApiError:
    return ApiError(f"There is no {kind} called {word!r}: {PROGRAM} {list_command} lists them.")


def check_execution_id(word: str) -> str:
    if not is_uuid(word):
        raise UsageError(
            f"{word!r} is not the id of an execution: {PROGRAM} executions --job {quote(word)} lists those of a job."
        )
    return word
