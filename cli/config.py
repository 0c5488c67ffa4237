"""Which server to talk to, and with which token.

A token is only ever sent to the server it came with: an address from the environment never gets the
token of the local stack.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from cli.errors import NotConfiguredError

CHECKOUT = Path(__file__).resolve().parent.parent
WHAT_TO_DO = "run ./punctual up or set PUNCTUAL_URL and PUNCTUAL_TOKEN"


@dataclass(frozen=True)
class Config:
    url: str
    token: str = field(repr=False)


def load_config(environment: Mapping[str, str]) -> Config:
    url = environment.get("PUNCTUAL_URL", "").strip()
    token = environment.get("PUNCTUAL_TOKEN", "").strip()
    if url and not token:
        raise NotConfiguredError("PUNCTUAL_URL is set but PUNCTUAL_TOKEN is not: set both.")
    if not url:
        stored = _read_credentials(environment)
        url, token = stored.url, token or stored.token
    return Config(url=_check_url(url), token=_check_token(token))


def _read_credentials(environment: Mapping[str, str]) -> Config:
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
            return Config(url=url, token=token)
    raise NotConfiguredError(f"{path} names no url and api_token: {WHAT_TO_DO}.")


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise NotConfiguredError(f"PUNCTUAL_URL is {url!r}: write it as http://host:port.")
    return url.rstrip("/")


def _check_token(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise NotConfiguredError("PUNCTUAL_TOKEN is not a token: it has spaces or other odd characters in it.")
    return token
