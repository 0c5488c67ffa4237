"""Which server to talk to, and with which token: what was said explicitly comes before what is only there.

A token is only ever sent to the server it came with: an address from the environment never gets the
token of the local stack or of a profile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from cli.errors import NotConfiguredError
from cli.profiles import LOCAL, path_of, read_profiles

CHECKOUT = Path(__file__).resolve().parent.parent
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
WHAT_TO_DO = "run ./punctual up, run ./punctual login, or set PUNCTUAL_URL and PUNCTUAL_TOKEN"


@dataclass(frozen=True)
class Config:
    url: str
    token: str = field(repr=False)


def load_config(environment: Mapping[str, str]) -> Config:
    """The environment's server, its profile, the profile in use, the local stack: the first that there is."""
    url = environment.get("PUNCTUAL_URL", "").strip()
    token = environment.get("PUNCTUAL_TOKEN", "").strip()
    if url and not token:
        raise NotConfiguredError("PUNCTUAL_URL is set but PUNCTUAL_TOKEN is not: set both.")
    if url:
        return Config(check_url(url), check_token(token))
    name = profile_in_use(environment)
    if name and name != LOCAL:
        profile = read_profiles(path_of(environment)).named(name)
        where = f"The profile {name}'s"
        return Config(check_url(profile.url, f"{where} url"), check_token(profile.token, f"{where} token"))
    stored = local_stack(environment)
    # A token alone is another one for the local stack.
    return stored if name else Config(stored.url, check_token(token or stored.token))


def profile_in_use(environment: Mapping[str, str]) -> str:
    """The name of the profile that is meant where no address is given; empty: the local stack, since none is."""
    name = environment.get("PUNCTUAL_PROFILE", "").strip()
    if name or environment.get("PUNCTUAL_TOKEN", "").strip():
        return name
    return read_profiles(path_of(environment)).current or ""


def local_stack(environment: Mapping[str, str]) -> Config:
    folder = environment.get("PUNCTUAL_VAR", "").strip()
    path = (Path(folder) if folder else CHECKOUT / "var") / "credentials.json"
    try:
        stored: object = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise NotConfiguredError(f"No server is known: {WHAT_TO_DO}.") from None
    except PermissionError:
        raise NotConfiguredError(f"{path} belongs to another user: set PUNCTUAL_URL and PUNCTUAL_TOKEN.") from None
    except (OSError, ValueError) as error:
        raise NotConfiguredError(f"{path} cannot be read ({error}): {WHAT_TO_DO}.") from None
    if isinstance(stored, dict):
        url, token = stored.get("url"), stored.get("api_token")
        if isinstance(url, str) and isinstance(token, str):
            return Config(check_url(url), check_token(token))
    raise NotConfiguredError(f"{path} names no url and api_token: {WHAT_TO_DO}.")


def is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in LOOPBACK


def check_url(url: str, what: str = "PUNCTUAL_URL") -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and url.isprintable()
    except ValueError:
        usable = False
    if not usable:
        raise NotConfiguredError(f"{what} is {url!r}: write it as http://host:port.")
    if "@" in parts.netloc:
        # It would be sent in place of the token.
        raise NotConfiguredError(f"{what} has a name or a password in it: write it as http://host:port.")
    return url.rstrip("/").removesuffix("/api/v1").rstrip("/")


def check_token(token: str, what: str = "PUNCTUAL_TOKEN") -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise NotConfiguredError(f"{what} is not a token: it has spaces or other odd characters in it.")
    return token
