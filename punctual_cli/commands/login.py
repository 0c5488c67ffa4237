"""`login`, `logout` and `profiles`: the known servers and the current one."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import add_command_group, app, open_client
from punctual_cli.commands.completion import complete_profile_name
from punctual_cli.commands.options import FormatOption, TokenScope
from punctual_cli.output.results import Column, Format, raw_field, write_list
from punctual_cli.output.terminal import format_time, write_message
from punctual_client.config import (
    check_token,
    check_url,
    current_profile_name,
    read_local_stack_config,
    refuse_plaintext,
)
from punctual_client.errors import (
    PROGRAM,
    ApiError,
    NotConfiguredError,
    ProfileWriteError,
    UnauthorisedError,
    UnreachableError,
    UsageError,
)
from punctual_client.json_fields import JsonObject
from punctual_client.profiles import (
    LOCAL_PROFILE,
    Profile,
    change_profiles,
    check_profile_name,
    default_profile_name,
    profiles_path,
    read_profiles,
)

if TYPE_CHECKING:
    from punctual_client.resources.tokens import Token

MAX_LINE_BYTES = 8192

profiles_app = add_command_group("profiles", help="List the servers you have logged in to, and switch between them.")


@dataclass(frozen=True)
class ProfileRow:
    raw: JsonObject


COLUMNS: tuple[Column[ProfileRow], ...] = (
    Column("NAME", raw_field("name"), whole=True),
    Column("URL", raw_field("url")),
    Column("CURRENT", lambda row: "yes" if row.raw["current"] else ""),
)


@app.command()
def login(
    url: Annotated[str | None, typer.Argument(metavar="URL", help="Address of the server: https://host.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="User name.")] = None,
    token: Annotated[bool, typer.Option("--token", help="Use an existing token instead of a password.")] = False,
    scope: Annotated[
        TokenScope, typer.Option(metavar="read|submit|operate|admin", help="Scope of the new token.")
    ] = TokenScope.ADMIN,
) -> None:
    """Get a token for a user name and a password, and use that server from now on.

    Asks for the password or token, or reads it from standard input. To choose a name for the server, use the global
    option: punctual --profile NAME login URL.
    """
    if scope is TokenScope.WORKER:
        raise UsageError(f"Workers have their own tokens: {PROGRAM} tokens create --scope worker makes one.")
    address = check_url(url or _prompt("Server", None), "The server")
    name = check_profile_name(os.environ.get("PUNCTUAL_PROFILE", "").strip() or default_profile_name(address))
    refuse_plaintext(address, os.environ)
    path = profiles_path(os.environ)
    before = read_profiles(path).known.get(name)
    metadata, secret = _verify_given_token(address) if token else _create_token(address, user, scope)
    profile = Profile(address, secret, made_by_login=not token)
    if before is not None and before.token == secret:
        profile = before
    try:
        change_profiles(path, lambda profiles: profiles.with_profile(name, profile))
    except ProfileWriteError:
        if not token:
            _try_revoke_token(profile)
        raise
    if before is not None and before.token != secret:
        _try_revoke_token(before)
    until = f" until {format_time(metadata.expires_at)}" if metadata.expires_at else ""
    write_message(
        f"Logged in to {address} as {metadata.owner} (scope {metadata.scope}){until}. "
        f"The profile {name} is the current one."
    )
    if os.environ.get("PUNCTUAL_URL", "").strip():
        write_message("PUNCTUAL_URL is set and takes precedence over it.")


@app.command()
def logout(
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget the token without revoking it on the server.")
    ] = False,
) -> None:
    """Revoke and forget the token of the current profile, or of --profile.

    A token from login --token is only forgotten.
    """
    path = profiles_path(os.environ)
    profiles = read_profiles(path)
    name = os.environ.get("PUNCTUAL_PROFILE", "").strip() or profiles.current
    if name is None or name == LOCAL_PROFILE:
        raise NotConfiguredError(f"There is no profile to log out of: {PROGRAM} profiles lists them.")
    profile = profiles.by_name(name)
    if not forget and profile.made_by_login:
        _revoke_token(profile)
    change_profiles(path, lambda latest: latest.without_profile(name))
    kept = "" if profile.made_by_login else " Its token came from login --token: it was not revoked and is still valid."
    write_message(f"Logged out of {profile.url} and removed the profile {name}.{kept}")


@profiles_app.callback(invoke_without_command=True)
def list_profiles(context: typer.Context, output: FormatOption = Format.TABLE) -> None:
    """List the servers you have logged in to, and switch between them."""
    if context.invoked_subcommand is not None:
        return
    profiles = read_profiles(profiles_path(os.environ))
    addresses = {name: profile.url for name, profile in sorted(profiles.known.items())}
    with suppress(NotConfiguredError):
        addresses[LOCAL_PROFILE] = read_local_stack_config(os.environ).url
    override = os.environ.get("PUNCTUAL_URL", "").strip()
    current = None if override else current_profile_name(os.environ) or LOCAL_PROFILE
    found = [ProfileRow({"name": name, "url": url, "current": name == current}) for name, url in addresses.items()]
    write_list(found, COLUMNS, output, if_empty=f"No profiles yet: {PROGRAM} login URL makes one.")
    if override:
        write_message(f"PUNCTUAL_URL is set and takes precedence over all of them: {override} is used.")
    elif current not in (*addresses, LOCAL_PROFILE):
        write_message(f"The current profile {current!r} does not exist.")


@profiles_app.command(name="use")
def use_profile(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Profile name, or local.", autocompletion=complete_profile_name)
    ],
) -> None:
    """Use this server from now on; `local` is the local stack."""
    change_profiles(profiles_path(os.environ), lambda profiles: profiles.with_current(name))
    write_message(f"The profile {name} is the current one.")


def _create_token(address: str, user: str | None, scope: TokenScope) -> tuple[Token, str]:
    username = user or _prompt("User", "--user")
    password = _prompt_secret("Password")
    with open_client(address, "") as client:
        created = client.log_in(username, password, scope=scope.value, name=f"cli on {socket.gethostname()}"[:100])
    return created.token, check_token(created.secret, "The server's answer")


def _verify_given_token(address: str) -> tuple[Token, str]:
    secret = check_token(_prompt_secret("Token").strip(), "The given token")
    if not secret:
        raise UsageError("No token was given.")
    try:
        with open_client(address, secret) as client:
            return client.own_token(), secret
    except UnauthorisedError as error:
        # The general advice, such as to set a variable, does not help a user who has just given a token.
        raise UnauthorisedError(
            f"{address} does not accept this token: it is unknown, expired or revoked.",
            status=error.status,
        ) from None


def _revoke_token(profile: Profile) -> None:
    try:
        with open_client(profile.url, profile.token) as client:
            client.revoke_own_token()
    except UnauthorisedError:
        # It is already invalid.
        return
    except UnreachableError as error:
        raise UnreachableError(
            f"{str(error).rstrip('.')} Its token was not revoked: --forget forgets it anyway."
        ) from None


def _try_revoke_token(profile: Profile) -> None:
    """Revoke a token that was replaced; if that fails, it stays valid until it expires."""
    if not profile.made_by_login:
        return
    with suppress(ApiError), open_client(profile.url, profile.token) as client:
        client.revoke_own_token()


def _prompt(label: str, option: str | None) -> str:
    if not sys.stdin.isatty():
        raise UsageError(f"There is no terminal to ask on: {f'use {option}' if option else 'name the server'}.")
    answer: str = typer.prompt(label, err=True)
    return answer.strip()


def _prompt_secret(label: str) -> str:
    if sys.stdin.isatty():
        answer: str = typer.prompt(label, hide_input=True, err=True)
        return answer
    try:
        return sys.stdin.buffer.readline(MAX_LINE_BYTES).decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError("Standard input is not UTF-8 text.") from None
