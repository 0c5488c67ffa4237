"""Servers that were logged in to, each with its token, in one file that only its user can read.

The file is replaced as a whole or not at all: a full disk leaves the one that was there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
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

from cli.errors import NotConfiguredError, ProfilesNotKeptError, UsageMistakeError
from cli.terminal import say

LOCAL = "local"  # always the local stack, and never in the file
LOCK_SECONDS = 5.0
LONGEST_NAME = 63
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}", re.ASCII)


@dataclass(frozen=True)
class Profile:
    url: str
    token: str = field(repr=False)
    # Only a token that login made is login's to revoke: one that was given may be in use elsewhere.
    made_by_login: bool = False


@dataclass(frozen=True)
class Profiles:
    known: Mapping[str, Profile] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str) -> Profile:
        if name not in self.known:
            raise NotConfiguredError(f"There is no profile called {name!r}: ./punctual profiles lists them.")
        return self.known[name]

    def having(self, name: str, profile: Profile) -> Profiles:
        """With one more, in use from now on."""
        return Profiles({**self.known, name: profile}, name)

    def without(self, name: str) -> Profiles:
        rest = {other: profile for other, profile in self.known.items() if other != name}
        return Profiles(rest, None if self.current == name else self.current)

    def using(self, name: str) -> Profiles:
        if name != LOCAL:
            self.named(name)
        return replace(self, current=None if name == LOCAL else name)


def path_of(environment: Mapping[str, str]) -> Path:
    folder = environment.get("XDG_CONFIG_HOME", "")
    # The standard says that a relative one is to be ignored.
    home = Path(folder) if os.path.isabs(folder) else Path(environment.get("HOME") or "~").expanduser() / ".config"
    return home / "punctual" / "config.toml"


def check_name(name: str) -> str:
    if name == LOCAL:
        raise UsageMistakeError(f"The profile {LOCAL} is the local stack's: choose another name with --profile.")
    if not _NAME.fullmatch(name):
        raise UsageMistakeError(f"{name!r} cannot name a profile: use up to {LONGEST_NAME} letters, digits and . _ -")
    return name


def name_for(url: str) -> str:
    """What a profile is called by whom nobody has named it: the server's name, and its path there."""
    parts = urlsplit(url)
    host = re.sub(r"[^A-Za-z0-9.]+", "-", parts.hostname or "").strip("-.")[:50] or "server"
    name = host if parts.port is None else f"{host}-{parts.port}"
    if parts.path.strip("/"):
        # Two servers may share a host: the path tells them apart, or its digest where it is not a word.
        word = parts.path.strip("/")
        if not re.fullmatch(r"[A-Za-z0-9.-]+", word) or len(name) + len(word) >= LONGEST_NAME:
            word = hashlib.sha256(f"{name}/{word}".encode()).hexdigest()[:8]
        name = f"{name[: LONGEST_NAME - len(word) - 1]}_{word}"
    return f"{name}-server" if name == LOCAL else name


def read_profiles(path: Path) -> Profiles:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # Not there, or in the home of somebody else, as with sudo: nothing there is ours.
        return Profiles()
    try:
        stored = tomllib.loads(path.read_text(encoding="utf-8"))
    except PermissionError:
        raise NotConfiguredError(f"{path} belongs to another user: set PUNCTUAL_URL and PUNCTUAL_TOKEN.") from None
    except (OSError, ValueError) as error:
        raise NotConfiguredError(f"{path} cannot be read ({error}): mend it, or delete it and log in again.") from None
    if mode & 0o077:
        say(f"Others can read the tokens in {path}: run chmod 600 on it.")
    tables, current = stored.get("profiles", {}), stored.get("current")
    known = {name: _profile(path, name, table) for name, table in tables.items()} if isinstance(tables, dict) else {}
    return Profiles(known, current if isinstance(current, str) else None)


def change_profiles(path: Path, change: Callable[[Profiles], Profiles]) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path.parent):
            _replace(Path(os.path.realpath(path)), _written(change(read_profiles(path))))
    except OSError as error:
        why = error.strerror or str(error)
        raise ProfilesNotKeptError(f"{path} could not be written ({why}): it is as it was.") from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two that log in at once must not forget one another."""
    deadline = time.monotonic() + LOCK_SECONDS
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise ProfilesNotKeptError(f"Another punctual is writing in {folder}: try again.") from None
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    # Made readable by nobody else.
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


def _profile(path: Path, name: str, table: object) -> Profile:
    if isinstance(table, dict):
        url, token = table.get("url"), table.get("token")
        if isinstance(url, str) and isinstance(token, str):
            return Profile(url, token, table.get("made_by_login") is True)
    raise NotConfiguredError(f"{path}: the profile {name!r} has no url and token; mend it, or delete it and log in.")


def _written(profiles: Profiles) -> str:
    lines = ["# Written by punctual login, logout and profiles."]
    if profiles.current is not None:
        lines.append(f"current = {_quoted(profiles.current)}")
    for name, profile in sorted(profiles.known.items()):
        lines += [
            "",
            f"[profiles.{_quoted(name)}]",
            f"url = {_quoted(profile.url)}",
            f"token = {_quoted(profile.token)}",
            f"made_by_login = {'true' if profile.made_by_login else 'false'}",
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's escapes are among its own, but for one character that JSON does not escape."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
