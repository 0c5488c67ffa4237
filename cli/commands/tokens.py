"""`tokens`: what programs show instead of a password. A secret is printed once, by the command that makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import connect, group
from cli.commands.options import AnswerOption, FormatOption, LimitOption, Scope, YesOption
from cli.errors import ClientError, UsageMistakeError
from cli.results import Column, Format, field, moment, write_answer, write_list
from cli.terminal import confirm, say, shown_time
from cli.values import is_id

if TYPE_CHECKING:
    from cli.client import Client
    from cli.token_records import Token

MOST_TOKENS = 10_000


def _end(token: Token) -> str:
    if token.revoked_at:
        return f"revoked {shown_time(token.revoked_at)}"
    return shown_time(token.expires_at) if token.expires_at else "no end"


COLUMNS: tuple[Column[Token], ...] = (
    Column("ID", field("id"), whole=True),
    Column("NAME", field("name")),
    Column("OWNER", field("owner"), spare=1),
    Column("SCOPE", field("scope")),
    Column("GOOD UNTIL", _end),
    Column("LAST USED", moment("last_used_at"), spare=2),
    Column("POOL", field("pool"), wide=True),
    Column("CREATED", moment("created_at"), wide=True),
)

tokens_app = group("tokens", help="List tokens, make and revoke them.")


@tokens_app.callback(invoke_without_command=True)
def list_tokens(context: typer.Context, limit: LimitOption = 50, output: FormatOption = Format.TABLE) -> None:
    """List tokens, also expired and revoked ones; make and revoke them."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        found = client.tokens(limit=limit)
    write_list(found, COLUMNS, output)


@tokens_app.command(name="create")
def create_token(  # noqa: PLR0917  each is an option of the command line
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What it is for.")],
    scope: Annotated[Scope, typer.Option(help="What it may do; each includes those before it.")] = Scope.READ,
    days: Annotated[int | None, typer.Option(metavar="N", min=1, max=36_500, help="How long it is good for.")] = None,
    never: Annotated[bool, typer.Option("--never-expires", help="Good until it is revoked.")] = False,
    pool: Annotated[str, typer.Option(metavar="POOL", help="Of a worker's: the only pool that it may join.")] = "",
    output: AnswerOption = None,
) -> None:
    """Make a token and print its secret, which is shown this once."""
    if never and days is not None:
        raise UsageMistakeError("--days has no meaning beside --never-expires.")
    with connect() as client:
        made = client.create_token(name, scope=scope.value, days=days, never=never, pool=pool)
    write_answer(made.token.raw, output, short=made.secret)
    say(f"Made the token {made.token.name} of scope {made.token.scope}; good until: {_end(made.token)}.")


@tokens_app.command(name="revoke")
def revoke_token(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Its id, or its name.")], yes: YesOption = False
) -> None:
    """Revoke a token: whoever uses it is refused from now on."""
    with connect() as client:
        found = client.token(token) if is_id(token) else _find(client, token)
        confirm(f"Revoke the token {found.name} of {found.owner}?", yes=yes)
        client.revoke_token(found.id)
    say(f"Revoked {found.name}.")


def _find(client: Client, name: str) -> Token:
    named = [each for each in client.tokens(limit=MOST_TOKENS) if each.name == name and each.revoked_at is None]
    if len(named) != 1:
        which = "no token is" if not named else f"{len(named)} tokens are"
        raise ClientError(f"Of those that are not revoked, {which} called {name!r}: ./punctual tokens lists their ids.")
    return named[0]
