"""Profiles: servers with their tokens, in one file that only its user can read.

The file is replaced atomically, so that a full disk leaves the old one intact.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from punctual_client.errors import PROGRAM, NotConfiguredError, ProfileWriteError, UsageError

logger = logging.getLogger(__name__)

LOCAL_PROFILE = "local"  # always the local stack, never in the file
LOCK_SECONDS = 5.0
MAX_NAME_CHARS = 63
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_CHARS - 1}}}", re.ASCII)


@dataclass(frozen=True)
class Profile:
    url: str
    token: str = field(repr=False)
    # login and logout revoke only a token that login created: a given one may be in use elsewhere.
    made_by_login: bool = False


@dataclass(frozen=True)
class Profiles:
    known: Mapping[str, Profile] = field(default_factory=dict)
    current: str | None = None

    def by_name(self, name: str) -> Profile:
        if name not in self.known:
            raise NotConfiguredError(f"There is no profile called {name!r}: {PROGRAM} profiles lists them.")
        return self.known[name]

    def with_profile(self, name: str, profile: Profile) -> Profiles:
        """Add or replace a profile and make it the current one."""
        return Profiles({**self.known, name: profile}, name)

    def without_profile(self, name: str) -> Profiles:
        rest = {other: profile for other, profile in self.known.items() if other != name}
        return Profiles(rest, None if self.current == name else self.current)

    def with_current(self, name: str) -> Profiles:
        if name != LOCAL_PROFILE:
            self.by_name(name)
        return replace(self, current=None if name == LOCAL_PROFILE else name)


def profiles_path(environment: Mapping[str, str]) -> Path:
    folder = environment.get("XDG_CONFIG_HOME", "")
    # The XDG specification says to ignore a relative path.
    home = Path(folder) if os.path.isabs(folder) else Path(environment.get("HOME") or "~").expanduser() / ".config"
    return home / "punctual" / "config.toml"


def check_profile_name(name: str) -> str:
    if name == LOCAL_PROFILE:
        raise UsageError(
            f"The profile {LOCAL_PROFILE} is reserved for the local stack: choose another name with --profile."
        )
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a profile: use up to {MAX_NAME_CHARS} letters, digits and . _ -")
    return name


def default_profile_name(url: str) -> str:
    """Return a profile name for a server: its host, port and path."""
    parts = urlsplit(url)
    host = re.sub(r"[^A-Za-z0-9.]+", "-", parts.hostname or "").strip("-.")[:50] or "server"
    name = host if parts.port is None else f"{host}-{parts.port}"
    if parts.path.strip("/"):
        # Two servers may share a host. A path that is not usable as a name is replaced by its digest.
        word = parts.path.strip("/")
        if not re.fullmatch(r"[A-Za-z0-9.-]+", word) or len(name) + len(word) >= MAX_NAME_CHARS:
            word = hashlib.sha256(f"{name}/{word}".encode()).hexdigest()[:8]
        name = f"{name[: MAX_NAME_CHARS - len(word) - 1]}_{word}"
    return f"{name}-server" if name == LOCAL_PROFILE else name


def read_profiles(path: Path) -> Profiles:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # Missing, or in another user's home, as with sudo.
        return Profiles()
    try:
        stored = tomllib.loads(path.read_text(encoding="utf-8"))
    except PermissionError:
        raise NotConfiguredError(f"{path} belongs to another user: set PUNCTUAL_URL and PUNCTUAL_TOKEN.") from None
    except (OSError, ValueError) as error:
        raise NotConfiguredError(
            f"{path} cannot be read ({error}): repair it, or delete it and log in again."
        ) from None
    if mode & 0o077:
        logger.warning("Others can read the tokens in %s: run chmod 600 on it.", path)
    tables, current = stored.get("profiles", {}), stored.get("current")
    known = (
        {name: _parse_profile(path, name, table) for name, table in tables.items()} if isinstance(tables, dict) else {}
    )
    return Profiles(known, current if isinstance(current, str) else None)


def change_profiles(path: Path, change: Callable[[Profiles], Profiles]) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _hold_lock(path.parent):
            _replace_file(Path(os.path.realpath(path)), _format_toml(change(read_profiles(path))))
    except OSError as error:
        why = error.strerror or str(error)
        raise ProfileWriteError(f"{path} could not be written ({why}): it is unchanged.") from None


@contextmanager
def _hold_lock(folder: Path) -> Iterator[None]:
    """Hold the lock that keeps concurrent logins from losing each other's changes."""
    deadline = time.monotonic() + LOCK_SECONDS
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise ProfileWriteError(f"Another punctual is writing to {folder}: try again.") from None
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _replace_file(path: Path, text: str) -> None:
    # mkstemp creates it readable by its owner only.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".config-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _parse_profile(path: Path, name: str, table: object) -> Profile:
    if isinstance(table, dict):
        url, token = table.get("url"), table.get("token")
        if isinstance(url, str) and isinstance(token, str):
            return Profile(url, token, table.get("made_by_login") is True)
    raise NotConfiguredError(f"{path}: the profile {name!r} has no url and token; repair it, or delete it and log in.")


def _format_toml(profiles: Profiles) -> str:
    lines = ["# Written by punctual login, logout and profiles."]
    if profiles.current is not None:
        lines.append(f"current = {_quote_toml(profiles.current)}")
    for name, profile in sorted(profiles.known.items()):
        lines += [
            "",
            f"[profiles.{_quote_toml(name)}]",
            f"url = {_quote_toml(profile.url)}",
            f"token = {_quote_toml(profile.token)}",
            f"made_by_login = {'true' if profile.made_by_login else 'false'}",
        ]
    return "\n".join(lines) + "\n"


def _quote_toml(text: str) -> str:
    """Quote a TOML basic string: JSON's escapes are valid in it, but JSON leaves DEL unescaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
