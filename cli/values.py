"""The words of the command line as values: durations, instants, dependencies, environment, output names.

Every function either returns a value the server can take or raises one sentence that names the word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import PurePosixPath
from uuid import UUID
from zoneinfo import ZoneInfo

from cli.errors import UsageMistakeError

SECONDS_PER_UNIT = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_NUMBER = re.compile(r"\d+", re.ASCII)
_LONGEST_DURATION = 100 * 366 * SECONDS_PER_UNIT["d"]

CONDITIONS = ("success", "failure", "completion")


def parse_duration(word: str) -> int:
    """`30s`, `5m`, `1h30m`, `2d`, `1w` or plain seconds, as whole seconds."""
    match = _DURATION.fullmatch(word)
    if _NUMBER.fullmatch(word):
        seconds = int(word[:20])
    elif word and match:
        parts = zip(match.groups(default="0"), SECONDS_PER_UNIT.values(), strict=True)
        seconds = sum(int(amount[:20]) * unit for amount, unit in parts)
    else:
        raise UsageMistakeError(f"{word!r} is not a duration: write it as 30s, 5m, 1h30m or 2d.")
    if not 0 < seconds <= _LONGEST_DURATION:
        raise UsageMistakeError(f"The duration {word!r} is not between one second and a hundred years.")
    return seconds


def parse_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise UsageMistakeError(
            f"{name!r} is not a time zone: write it as Europe/Paris, or leave it out for UTC."
        ) from None


def parse_instant(word: str, zone: ZoneInfo | None) -> str:
    """An ISO 8601 time in UTC; one without an offset is in the zone, else in this machine's own."""
    try:
        instant = datetime.fromisoformat(word)
        if instant.tzinfo is None and zone is not None:
            instant = instant.replace(tzinfo=zone)
        return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        raise UsageMistakeError(
            f"{word!r} is not a time: write it as 2030-01-31T09:00 or 2030-01-31T09:00+01:00."
        ) from None


def parse_moment(word: str) -> str:
    """`1h` is an hour ago; anything that is no duration is a time."""
    try:
        seconds = parse_duration(word)
    except UsageMistakeError:
        try:
            return parse_instant(word, None)
        except UsageMistakeError:
            raise UsageMistakeError(
                f"{word!r} is not a time: write it as 2030-01-31T09:00, or 1h for an hour ago."
            ) from None
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def parse_date(word: str) -> str:
    try:
        return date.fromisoformat(word).isoformat()
    except ValueError:
        raise UsageMistakeError(f"{word!r} is not a date: write it as 2030-01-31.") from None


def parse_assignment(word: str) -> tuple[str, str]:
    name, separator, value = word.partition("=")
    if not separator or not name:
        raise UsageMistakeError(f"{word!r} is not a variable of the environment: write it as NAME=VALUE.")
    return name, value


def parse_input(word: str) -> tuple[str, str]:
    """`PATH=FILE`: where the program finds it, and what it is on this machine."""
    path, separator, file = word.partition("=")
    if not separator or not path or not file:
        raise UsageMistakeError(f"{word!r} is not an input: write it as PATH=FILE, such as data/a.csv=a.csv.")
    return path, file


def parse_grant(word: str, *, place: str) -> tuple[str, str]:
    """`VAR=SECRET` or `PATH=SECRET`: where the program finds it, and what it is called."""
    where, separator, name = word.partition("=")
    if not separator or not where or not name:
        raise UsageMistakeError(f"{word!r} does not give a secret: write it as {place}=NAME, by the secret's name.")
    return where, name


@dataclass(frozen=True)
class After:
    """A job that has to end in a certain way before another one runs."""

    job: str
    condition: str


def parse_after(word: str) -> After:
    """`JOB` or `JOB:condition`."""
    job, separator, condition = word.rpartition(":")
    if not separator:
        return After(job=word, condition="success")
    if condition not in CONDITIONS or not job:
        raise UsageMistakeError(
            f"{word!r} is not a dependency: write it as JOB or JOB:condition, "
            f"where the condition is {', '.join(CONDITIONS[:-1])} or {CONDITIONS[-1]}."
        )
    return After(job=job, condition=condition)


def is_id(word: str) -> bool:
    try:
        UUID(word)
    except ValueError:
        return False
    return True


def safe_output_path(name: str) -> PurePosixPath:
    """The relative path of an output; a name is written by a job, so it may point anywhere."""
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
        raise UsageMistakeError(f"The output {name!a} was not written: its name could lead out of the folder.")
    return path
