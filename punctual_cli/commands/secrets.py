"""`secrets`: list, set and delete them. A value is never an argument: other users can see command lines."""

from __future__ import annotations

import sys
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import add_command_group, connect, only_match, unknown_name
from punctual_cli.argument_parsing import is_uuid
from punctual_cli.commands.options import FormatOption, LimitOption, ResultFormatOption, YesOption
from punctual_cli.output.results import Column, Format, raw_field, time_field, write_list, write_resource
from punctual_cli.output.terminal import confirm, write_message
from punctual_client.errors import PROGRAM, ApiError, UsageError

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.secrets import Secret

MAX_SECRET_BYTES = 64 * 1024
COLUMNS: tuple[Column[Secret], ...] = (
    Column("ID", raw_field("id"), whole=True),
    Column("NAME", raw_field("name")),
    Column("OWNER", raw_field("owner")),
    Column("VERSION", raw_field("version"), drop_order=1),
    Column("SET", time_field("updated_at")),
    Column("CREATED", time_field("created_at"), wide=True),
)
SecretArgument = Annotated[str, typer.Argument(metavar="NAME", help="Secret name or id.")]

secrets_app = add_command_group("secrets", help="List, set and delete secrets.")


@secrets_app.callback(invoke_without_command=True)
def list_secrets(context: typer.Context, limit: LimitOption = 50, output: FormatOption = Format.TABLE) -> None:
    """List secrets by name."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        found = client.secrets(limit=limit)
    write_list(found, COLUMNS, output, if_empty=f"No secrets yet: {PROGRAM} secrets set NAME makes one.")


@secrets_app.command(name="set")
def set_secret(
    name: SecretArgument,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read the exact value from this file.", dir_okay=False)
    ] = None,
    output: ResultFormatOption = None,
) -> None:
    """Create a secret or change its value, read from --file, from standard input or typed twice.

    A newline at the end of standard input is removed; in a file it is part of the value.
    """
    value = _read_stdin() if file is None else _read_value_file(file)
    with connect() as client:
        secret = client.rotate_secret(name, value) if is_uuid(name) else _create_or_rotate(client, name, value)
    write_message(
        f"Created the secret {secret.name}." if secret.version == 1 else f"The secret {secret.name} has a new value."
    )
    write_resource(secret.raw, output)


@secrets_app.command(name="delete")
def delete_secret(name: SecretArgument, yes: YesOption = False) -> None:
    """Delete a secret that no job uses."""
    with connect() as client:
        secret = client.secret(name) if is_uuid(name) else _find_secret(client, name)
        if secret is None:
            raise unknown_name("secret", name, "secrets")
        confirm(f"Delete the secret {secret.name} of {secret.owner}?", yes=yes)
        client.delete_secret(secret.id)
    write_message(f"Deleted {secret.name}.")


def _create_or_rotate(client: Client, name: str, value: str) -> Secret:
    """Try to create it first: staff also see secrets of other users, and must not change one by its name."""
    try:
        return client.create_secret(name, value)
    except ApiError as error:
        found = _find_secret(client, name) if error.status == HTTPStatus.CONFLICT else None
        if found is None:
            raise
    return client.rotate_secret(found.id, value)


def _find_secret(client: Client, name: str) -> Secret | None:
    return only_match(client.secrets(name=name, limit=2), "secret", name)


def _read_stdin() -> str:
    if sys.stdin.isatty():
        value: str = typer.prompt("Value", hide_input=True, confirmation_prompt=True, err=True)
        return value
    return _decode_value(sys.stdin.buffer.read(MAX_SECRET_BYTES + 2), "Standard input").removesuffix("\n")


def _read_value_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _decode_value(file.read(MAX_SECRET_BYTES + 2), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None


def _decode_value(content: bytes, source: str) -> str:
    """Decode a value; the limit only bounds what is read, the server enforces the exact size."""
    if len(content) > MAX_SECRET_BYTES + 1:
        raise UsageError(f"{source} has more than the {MAX_SECRET_BYTES} bytes that a secret may have.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{source} is not UTF-8 text: encode it, for example in base64.") from None
