"""`tokens`: list, create and revoke API tokens. Only the command that creates a token prints its secret."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import MAX_LISTED, add_command_group, connect
from punctual_cli.argument_parsing import is_uuid
from punctual_cli.commands.options import FormatOption, LimitOption, ResultFormatOption, TokenScope, YesOption
from punctual_cli.output.results import Column, Format, raw_field, time_field, write_list, write_resource
from punctual_cli.output.terminal import confirm, format_time, write_message
from punctual_client.errors import PROGRAM, ApiError, UsageError
from punctual_client.json_fields import text_list_field

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.tokens import Token


def _describe_expiry(token: Token) -> str:
    if token.revoked_at:
        return f"revoked {format_time(token.revoked_at)}"
    if token.expires_at and datetime.fromisoformat(token.expires_at) <= datetime.now(UTC):
        return f"expired {format_time(token.expires_at)}"
    if not token.in_force:
        return "not accepted"
    return format_time(token.expires_at) if token.expires_at else "no expiry"


COLUMNS: tuple[Column[Token], ...] = (
    Column("ID", raw_field("id"), whole=True),
    Column("NAME", raw_field("name")),
    Column("OWNER", raw_field("owner"), drop_order=1),
    Column("SCOPE", raw_field("scope")),
    Column("VALID UNTIL", _describe_expiry),
    Column("LAST USED", time_field("last_used_at"), drop_order=2),
    Column("POOL", raw_field("pool"), wide=True),
    Column("SECRETS", lambda token: " ".join(text_list_field(token.raw, "secrets")), wide=True),
    Column("CREATED", time_field("created_at"), wide=True),
)

tokens_app = add_command_group("tokens", help="List, create and revoke API tokens.")


@tokens_app.callback(invoke_without_command=True)
def list_tokens(context: typer.Context, limit: LimitOption = 50, output: FormatOption = Format.TABLE) -> None:
    """List tokens, expired and revoked ones included."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        found = client.tokens(limit=limit)
    write_list(found, COLUMNS, output)


@tokens_app.command(name="create")
def create_token(  # noqa: PLR0917  one parameter per option
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name that describes its purpose.")],
    scope: Annotated[
        TokenScope, typer.Option(help="Scope; each includes the ones before it, except worker.")
    ] = TokenScope.READ,
    days: Annotated[int | None, typer.Option(metavar="N", min=1, max=36_500, help="Days until it expires.")] = None,
    never: Annotated[bool, typer.Option("--never-expires", help="Never expire; valid until revoked.")] = False,
    secret: Annotated[
        list[str] | None,
        typer.Option("--secret", metavar="NAME", help="Allow it to give jobs this secret (repeatable)."),
    ] = None,
    all_secrets: Annotated[bool, typer.Option("--all-secrets", help="Allow it to give jobs any secret.")] = False,
    pool: Annotated[
        str, typer.Option(metavar="POOL", help="Worker tokens only: restrict the token to this pool.")
    ] = "",
    any_pool: Annotated[
        bool, typer.Option("--any-pool", help="Worker tokens only: allow any pool, and with it the runs of all users.")
    ] = False,
    max_workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=1000, help="Worker tokens only: maximum number of workers. (default: 1)"),
    ] = None,
    output: ResultFormatOption = None,
) -> None:
    """Create a token and print its secret, which is never shown again."""
    if never and days is not None:
        raise UsageError("--days cannot be combined with --never-expires.")
    if secret and all_secrets:
        raise UsageError("--secret cannot be combined with --all-secrets.")
    with connect() as client:
        created = client.create_token(
            name,
            scope=scope.value,
            days=days,
            never=never,
            pool=pool,
            any_pool=any_pool,
            max_workers=max_workers,
            secrets=["*"] if all_secrets else secret or None,
        )
    write_resource(created.token.raw, output, short=created.secret)
    write_message(
        f"Created the token {created.token.name} with the scope {created.token.scope}; "
        f"valid until: {_describe_expiry(created.token)}."
    )


@tokens_app.command(name="revoke")
def revoke_token(
    token: Annotated[str | None, typer.Argument(metavar="TOKEN", help="Token name or id.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Revoke all your tokens, the one in use included.")] = False,
    workers: Annotated[bool, typer.Option("--workers", help="With --all: revoke worker tokens too.")] = False,
    yes: YesOption = False,
) -> None:
    """Revoke a token, or all of yours. It stops working at once."""
    if every == (token is not None) or (workers and not every):
        raise UsageError("Name a token, or use --all, with --workers for worker tokens too.")
    with connect() as client:
        if token is None:
            confirm(f"Revoke all of your tokens{', worker tokens included' if workers else ''}?", yes=yes)
            revoked = client.revoke_all_tokens(workers=workers)
            write_message(f"Revoked {revoked} token{'' if revoked == 1 else 's'}: log in for a new one.")
            return
        found = client.token(token) if is_uuid(token) else _find_token(client, token)
        confirm(f"Revoke the token {found.name} of {found.owner}?", yes=yes)
        client.revoke_token(found.id)
    write_message(f"Revoked {found.name}.")


def _find_token(client: Client, name: str) -> Token:
    named = [each for each in client.tokens(limit=MAX_LISTED) if each.name == name and each.revoked_at is None]
    if len(named) != 1:
        count = "no token is" if not named else f"{len(named)} tokens are"
        raise ApiError(
            f"Of the tokens that are not revoked, {count} called {name!r}: {PROGRAM} tokens lists their ids."
        )
    return named[0]
