"""`login`, `logout` and `profiles`: which servers are known, and which one is meant."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from cli.answers import JsonObject
from cli.app import app, client_of, group
from cli.commands.options import FormatOption, Scope
from cli.completion import profile_names
from cli.config import check_token, check_url, is_loopback, local_stack, profile_in_use
from cli.errors import (
    ClientError,
    NotConfiguredError,
    ProfilesNotKeptError,
    UnauthorisedError,
    UnreachableError,
    UsageMistakeError,
)
from cli.profiles import LOCAL, Profile, change_profiles, check_name, name_for, path_of, read_profiles
from cli.results import Column, Format, field, write_list
from cli.terminal import say, shown_time

if TYPE_CHECKING:
    from cli.token_records import Token

LONGEST_LINE = 8192

profiles_app = group("profiles", help="List the servers that are known, and choose one.")


@dataclass(frozen=True)
class Listed:
    raw: JsonObject


COLUMNS: tuple[Column[Listed], ...] = (
    Column("NAME", field("name"), whole=True),
    Column("URL", field("url")),
    Column("IN USE", lambda listed: "yes" if listed.raw["current"] else ""),
)


@app.command()
def login(
    url: Annotated[str | None, typer.Argument(metavar="URL", help="The server, as https://host.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Whose password it is.")] = None,
    token: Annotated[
        bool, typer.Option("--token", help="Keep a token that you have, instead of giving a password for a new one.")
    ] = False,
    scope: Annotated[
        Scope, typer.Option(metavar="read|submit|operate|admin", help="What the new token may do.")
    ] = Scope.ADMIN,
) -> None:
    """Get a token for a name and a password, and use that server from now on.

    The password or token is asked for, or read from standard input. Say `punctual --profile NAME login` to choose what
    the server is called.
    """
    if scope is Scope.WORKER:
        raise UsageMistakeError("A worker has a token of its own: ./punctual tokens create --scope worker makes one.")
    address = check_url(url or _ask("Server", None), "The server")
    name = check_name(os.environ.get("PUNCTUAL_PROFILE", "").strip() or name_for(address))
    if urlsplit(address).scheme == "http" and not is_loopback(address):
        say(f"{address} is not https: whoever is on the way can read what you send.")
    path = path_of(os.environ)
    before = read_profiles(path).known.get(name)
    known, secret = _given_token(address) if token else _new_token(address, user, scope)
    profile = Profile(address, secret, made_by_login=not token)
    if before is not None and before.token == secret:
        profile = before
    try:
        change_profiles(path, lambda profiles: profiles.having(name, profile))
    except ProfilesNotKeptError:
        if not token:
            _give_up(profile)
        raise
    if before is not None and before.token != secret:
        _give_up(before)
    until = f" until {shown_time(known.expires_at)}" if known.expires_at else ""
    say(f"Logged in to {address} as {known.owner} (scope {known.scope}){until}. The profile {name} is in use now.")
    if os.environ.get("PUNCTUAL_URL", "").strip():
        say("PUNCTUAL_URL is set, and comes before it.")


@app.command()
def logout(
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget the token without revoking it at the server.")
    ] = False,
) -> None:
    """Revoke the token of the profile that is in use, or of --profile, and forget it.

    A token that was given with login --token is only forgotten.
    """
    path = path_of(os.environ)
    profiles = read_profiles(path)
    name = os.environ.get("PUNCTUAL_PROFILE", "").strip() or profiles.current
    if name is None or name == LOCAL:
        raise NotConfiguredError("There is no profile to log out of: ./punctual profiles lists them.")
    profile = profiles.named(name)
    if not forget and profile.made_by_login:
        _revoke(profile)
    change_profiles(path, lambda latest: latest.without(name))
    kept = "" if profile.made_by_login else " Its token was given, so it was only forgotten: it is as good as before."
    say(f"Logged out of {profile.url}: the profile {name} is gone.{kept}")


@profiles_app.callback(invoke_without_command=True)
def list_profiles(context: typer.Context, output: FormatOption = Format.TABLE) -> None:
    """List the servers that are known, and choose one."""
    if context.invoked_subcommand is not None:
        return
    profiles = read_profiles(path_of(os.environ))
    addresses = {name: profile.url for name, profile in sorted(profiles.known.items())}
    with suppress(NotConfiguredError):
        addresses[LOCAL] = local_stack(os.environ).url
    given = os.environ.get("PUNCTUAL_URL", "").strip()
    current = None if given else profile_in_use(os.environ) or LOCAL
    found = [Listed({"name": name, "url": url, "current": name == current}) for name, url in addresses.items()]
    write_list(found, COLUMNS, output, nothing="No profiles yet: ./punctual login URL makes one.")
    if given:
        say(f"PUNCTUAL_URL is set, and comes before all of them: {given} is in use.")
    elif current not in (*addresses, LOCAL):
        say(f"There is no profile called {current!r}, which was chosen.")


@profiles_app.command(name="use")
def use_profile(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A profile, or local.", autocompletion=profile_names)],
) -> None:
    """Use this server from now on; `local` is the local stack."""
    change_profiles(path_of(os.environ), lambda profiles: profiles.using(name))
    say(f"The profile {name} is in use now.")


def _new_token(address: str, user: str | None, scope: Scope) -> tuple[Token, str]:
    username = user or _ask("User", "--user")
    password = _ask_secret("Password")
    with client_of(address, "") as client:
        made = client.log_in(username, password, scope=scope.value, name=f"cli on {socket.gethostname()}"[:100])
    return made.token, check_token(made.secret, "The server's answer")


def _given_token(address: str) -> tuple[Token, str]:
    secret = check_token(_ask_secret("Token").strip(), "What was given")
    if not secret:
        raise UsageMistakeError("No token was given.")
    try:
        with client_of(address, secret) as client:
            return client.own_token(), secret
    except UnauthorisedError as error:
        # What else it could be told, such as to set a variable, is of no use to whom has just given one.
        raise UnauthorisedError(
            f"{address} does not accept this token: it is not one of its own, or has expired or was revoked.",
            status=error.status,
        ) from None


def _revoke(profile: Profile) -> None:
    try:
        with client_of(profile.url, profile.token) as client:
            client.revoke_own_token()
    except UnauthorisedError:
        # It is no longer good: that is what was wanted.
        return
    except UnreachableError as error:
        raise UnreachableError(
            f"{str(error).rstrip('.')} Its token was not revoked: --forget forgets it all the same."
        ) from None


def _give_up(profile: Profile) -> None:
    """The token that a new one takes the place of; if it cannot be revoked now, it expires by itself."""
    if not profile.made_by_login:
        return
    with suppress(ClientError), client_of(profile.url, profile.token) as client:
        client.revoke_own_token()


def _ask(what: str, option: str | None) -> str:
    if not sys.stdin.isatty():
        raise UsageMistakeError(f"There is nobody to ask: {f'say {option}' if option else 'name the server'}.")
    answer: str = typer.prompt(what, err=True)
    return answer.strip()


def _ask_secret(what: str) -> str:
    if sys.stdin.isatty():
        answer: str = typer.prompt(what, hide_input=True, err=True)
        return answer
    try:
        return sys.stdin.buffer.readline(LONGEST_LINE).decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageMistakeError("Standard input is not UTF-8 text.") from None
