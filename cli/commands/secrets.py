"""`secrets`: what jobs are given and nobody reads back. A value is never an argument: others see command lines."""

from __future__ import annotations

import sys
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import connect, group
from cli.commands.options import AnswerOption, FormatOption, LimitOption, YesOption
from cli.errors import ClientError, UsageMistakeError
from cli.results import Column, Format, field, moment, write_answer, write_list
from cli.terminal import confirm, say
from cli.values import is_id

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Secret

LARGEST_BYTES = 64 * 1024
COLUMNS: tuple[Column[Secret], ...] = (
    Column("ID", field("id"), whole=True),
    Column("NAME", field("name")),
    Column("OWNER", field("owner")),
    Column("VERSION", field("version"), spare=1),
    Column("SET", moment("updated_at")),
    Column("CREATED", moment("created_at"), wide=True),
)
SecretArgument = Annotated[str, typer.Argument(metavar="NAME", help="Its name, or its id.")]

secrets_app = group("secrets", help="List secrets, set and delete them.")


@secrets_app.callback(invoke_without_command=True)
def list_secrets(context: typer.Context, limit: LimitOption = 50, output: FormatOption = Format.TABLE) -> None:
    """List secrets, by name; set and delete them."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        found = client.secrets(limit=limit)
    write_list(found, COLUMNS, output, nothing="No secrets yet: ./punctual secrets set NAME makes one.")


@secrets_app.command(name="set")
def set_secret(
    name: SecretArgument,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the value is, to the last byte.", dir_okay=False)
    ] = None,
    output: AnswerOption = None,
) -> None:
    """Make a secret, or give it a new value: from --file, else from standard input, else typed twice.

    One line end at the end of standard input is not part of the value; in a file it is.
    """
    value = _typed() if file is None else _read_file(file)
    with connect() as client:
        secret = client.rotate_secret(name, value) if is_id(name) else _create_or_rotate(client, name, value)
    say(f"Made the secret {secret.name}." if secret.version == 1 else f"The secret {secret.name} has a new value.")
    write_answer(secret.raw, output)


@secrets_app.command(name="delete")
def delete_secret(name: SecretArgument, yes: YesOption = False) -> None:
    """Delete a secret, if no job is given it."""
    with connect() as client:
        secret = client.secret(name) if is_id(name) else _find(client, name)
        if secret is None:
            raise ClientError(f"There is no secret called {name!r}: ./punctual secrets lists them.")
        confirm(f"Delete the secret {secret.name} of {secret.owner}?", yes=yes)
        client.delete_secret(secret.id)
    say(f"Deleted {secret.name}.")


def _create_or_rotate(client: Client, name: str, value: str) -> Secret:
    """First the one, so that staff, who see the secrets of others, never mean one of those by its name."""
    try:
        return client.create_secret(name, value)
    except ClientError as error:
        found = _find(client, name) if error.status == HTTPStatus.CONFLICT else None
        if found is None:
            raise
    return client.rotate_secret(found.id, value)


def _find(client: Client, name: str) -> Secret | None:
    named = client.secrets(name=name, limit=2)
    if len(named) > 1:
        raise ClientError(f"Several owners have a secret called {name!r}: name it by its id.")
    return named[0] if named else None


def _typed() -> str:
    if sys.stdin.isatty():
        value: str = typer.prompt("Value", hide_input=True, confirmation_prompt=True, err=True)
        return value
    return _text(sys.stdin.buffer.read(LARGEST_BYTES + 2), "Standard input").removesuffix("\n")


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _text(file.read(LARGEST_BYTES + 2), str(path))
    except OSError as error:
        raise UsageMistakeError(f"{path} cannot be read: {error.strerror or error}.") from None


def _text(content: bytes, where: str) -> str:
    """The server counts exactly; here only that no endless input is read."""
    if len(content) > LARGEST_BYTES + 1:
        raise UsageMistakeError(f"{where} has more than the {LARGEST_BYTES} bytes that a secret may have.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageMistakeError(f"{where} is not UTF-8 text: encode it, in base64 say.") from None
