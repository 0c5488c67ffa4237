"""Parsing of arguments: durations, instants, dependencies, assignments and output paths.

Every function returns a value that the server accepts or raises a `UsageError` that quotes the argument.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import PurePosixPath
from uuid import UUID
from zoneinfo import ZoneInfo

from punctual_client.errors import UsageError

SECONDS_PER_UNIT = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION_PATTERN = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_NUMBER_PATTERN = re.compile(r"\d+", re.ASCII)
_MAX_DURATION_SECONDS = 100 * 366 * SECONDS_PER_UNIT["d"]

DEPENDENCY_CONDITIONS = ("success", "failure", "completion")


def parse_duration(word: str) -> int:
    """Return the seconds of `30s`, `5m`, `1h30m`, `2d`, `1w` or a plain number."""
    match = _DURATION_PATTERN.fullmatch(word)
    if _NUMBER_PATTERN.fullmatch(word):
        seconds = int(word[:20])
    elif word and match:
        parts = zip(match.groups(default="0"), SECONDS_PER_UNIT.values(), strict=True)
        seconds = sum(int(amount[:20]) * unit for amount, unit in parts)
    else:
        raise UsageError(f"{word!r} is not a duration: write it as 30s, 5m, 1h30m or 2d.")
    if not 0 < seconds <= _MAX_DURATION_SECONDS:
        raise UsageError(f"The duration {word!r} is not between one second and a hundred years.")
    return seconds


def parse_timezone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise UsageError(f"{name!r} is not a time zone: write it as Europe/Paris, or leave it out for UTC.") from None


def parse_instant(word: str, zone: ZoneInfo | None) -> str:
    """Return an ISO 8601 time in UTC; without an offset it is in the zone, or in this machine's zone."""
    try:
        instant = datetime.fromisoformat(word)
        if instant.tzinfo is None and zone is not None:
            instant = instant.replace(tzinfo=zone)
        return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        raise UsageError(f"{word!r} is not a time: write it as 2030-01-31T09:00 or 2030-01-31T09:00+01:00.") from None


def parse_time(word: str) -> str:
    """Return a time in UTC; a duration such as `1h` is that long ago."""
    try:
        seconds = parse_duration(word)
    except UsageError:
        try:
            return parse_instant(word, None)
        except UsageError:
            raise UsageError(f"{word!r} is not a time: write it as 2030-01-31T09:00, or 1h for an hour ago.") from None
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def parse_date(word: str) -> str:
    try:
        return date.fromisoformat(word).isoformat()
    except ValueError:
        raise UsageError(f"{word!r} is not a date: write it as 2030-01-31.") from None


def parse_assignment(word: str) -> tuple[str, str]:
    name, separator, value = word.partition("=")
    if not separator or not name:
        raise UsageError(f"{word!r} is not an environment variable: write it as NAME=VALUE.")
    return name, value


def parse_input(word: str) -> tuple[str, str]:
    """Split `PATH=FILE` into the path for the program and the local file."""
    path, separator, file = word.partition("=")
    if not separator or not path or not file:
        raise UsageError(f"{word!r} is not an input: write it as PATH=FILE, such as data/a.csv=a.csv.")
    return path, file


def parse_secret_grant(word: str, *, place: str) -> tuple[str, str]:
    """Split `VAR=SECRET` or `PATH=SECRET` into the variable or path and the secret's name."""
    target, separator, name = word.partition("=")
    if not separator or not target or not name:
        raise UsageError(f"{word!r} does not name a secret: write it as {place}=NAME, with the secret's name.")
    return target, name


@dataclass(frozen=True)
class Dependency:
    """An upstream job and the condition on its outcome."""

    job: str
    condition: str


def parse_dependency(word: str) -> Dependency:
    """Parse `JOB` or `JOB:condition`."""
    job, separator, condition = word.rpartition(":")
    if not separator:
        return Dependency(job=word, condition="success")
    if condition not in DEPENDENCY_CONDITIONS or not job:
        raise UsageError(
            f"{word!r} is not a dependency: write it as JOB or JOB:condition, "
            f"where the condition is {', '.join(DEPENDENCY_CONDITIONS[:-1])} or {DEPENDENCY_CONDITIONS[-1]}."
        )
    return Dependency(job=job, condition=condition)


def is_uuid(word: str) -> bool:
    try:
        UUID(word)
    except ValueError:
        return False
    return True


def safe_output_path(name: str) -> PurePosixPath:
    """Return an output name as a relative path; jobs choose the names, so refuse any that leads elsewhere."""
    path = PurePosixPath(name)
    hostile = (
        path.is_absolute()
        or not path.parts
        or ".." in path.parts
        or "\\" in name
        or not name.isprintable()
        or any(len(part.encode(errors="surrogateescape")) > 255 for part in path.parts)
    )
    if hostile:
        raise UsageError(f"The output {name!a} was not written: its name could lead out of the directory.")
    return path
