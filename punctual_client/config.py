"""Selection of the server and its token: from the environment, a profile or the local stack.

A token is only sent to the server it came with: an address from the environment never gets the token of the local
stack or of a profile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from punctual_client.errors import IN_CHECKOUT, PROGRAM, NotConfiguredError
from punctual_client.profiles import LOCAL_PROFILE, profiles_path, read_profiles

CHECKOUT_DIRECTORY = Path(__file__).resolve().parent.parent
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
CONFIGURE_HINT = (
    f"{f'run {PROGRAM} up, ' if IN_CHECKOUT else ''}run {PROGRAM} login, or set PUNCTUAL_URL and PUNCTUAL_TOKEN"
)


@dataclass(frozen=True)
class Config:
    url: str
    token: str = field(repr=False)


def load_config(environment: Mapping[str, str]) -> Config:
    """Return the first of: PUNCTUAL_URL, PUNCTUAL_PROFILE, the profile in use, the local stack."""
    config = _find_config(environment)
    refuse_plaintext(config.url, environment)
    return config


def _find_config(environment: Mapping[str, str]) -> Config:
    url = environment.get("PUNCTUAL_URL", "").strip()
    token = environment.get("PUNCTUAL_TOKEN", "").strip()
    if url and not token:
        raise NotConfiguredError("PUNCTUAL_URL is set but PUNCTUAL_TOKEN is not: set both.")
    if url:
        return Config(check_url(url), check_token(token))
    name = current_profile_name(environment)
    if name and name != LOCAL_PROFILE:
        profile = read_profiles(profiles_path(environment)).by_name(name)
        subject = f"The profile {name}'s"
        return Config(check_url(profile.url, f"{subject} url"), check_token(profile.token, f"{subject} token"))
    stored = read_local_stack_config(environment)
    # PUNCTUAL_TOKEN alone is for the local stack.
    return stored if name else Config(stored.url, check_token(token or stored.token))


def current_profile_name(environment: Mapping[str, str]) -> str:
    """Return the profile to use when no address is set; empty: the local stack."""
    name = environment.get("PUNCTUAL_PROFILE", "").strip()
    if name or environment.get("PUNCTUAL_TOKEN", "").strip():
        return name
    return read_profiles(profiles_path(environment)).current or ""


def read_local_stack_config(environment: Mapping[str, str]) -> Config:
    folder = environment.get("PUNCTUAL_VAR", "").strip()
    path = (Path(folder) if folder else CHECKOUT_DIRECTORY / "var") / "credentials.json"
    try:
        stored: object = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise NotConfiguredError(f"No server is configured: {CONFIGURE_HINT}.") from None
    except PermissionError:
        raise NotConfiguredError(f"{path} belongs to another user: set PUNCTUAL_URL and PUNCTUAL_TOKEN.") from None
    except (OSError, ValueError) as error:
        raise NotConfiguredError(f"{path} cannot be read ({error}): {CONFIGURE_HINT}.") from None
    if isinstance(stored, dict):
        url, token = stored.get("url"), stored.get("api_token")
        if isinstance(url, str) and isinstance(token, str):
            return Config(check_url(url), check_token(token))
    raise NotConfiguredError(f"{path} contains no url and api_token: {CONFIGURE_HINT}.")


def is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in LOOPBACK_HOSTS


def refuse_plaintext(url: str, environment: Mapping[str, str]) -> None:
    """Refuse to send a token or a password unencrypted to another machine, unless that is allowed."""
    allowed = {part.strip() for part in environment.get("PUNCTUAL_ALLOW_PLAINTEXT", "").split(",")}
    if urlsplit(url).scheme == "http" and not is_loopback(url) and "http" not in allowed:
        raise NotConfiguredError(
            f"{url} is not https, so others on the network could read your token. Use https, or set"
            " PUNCTUAL_ALLOW_PLAINTEXT=http to allow it."
        )


def check_url(url: str, subject: str = "PUNCTUAL_URL") -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and url.isprintable()
    except ValueError:
        usable = False
    if not usable:
        raise NotConfiguredError(f"{subject} is {url!r}: write it as http://host:port.")
    if "@" in parts.netloc:
        # httpx would send them in place of the token.
        raise NotConfiguredError(f"{subject} contains a user name or a password: write it as http://host:port.")
    return url.rstrip("/").removesuffix("/api/v1").rstrip("/")


def check_token(token: str, subject: str = "PUNCTUAL_TOKEN") -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise NotConfiguredError(f"{subject} is not a token: it contains spaces or other invalid characters.")
    return token
