"""What was read of another scheduler: jobs as a file for `apply` has them, and what cannot be carried over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LONGEST_NAME = 190  # of the 200 that a job may have: there is room to tell it from another


@dataclass(frozen=True)
class Imported:
    where: str
    job: Mapping[str, object]  # as a file for `apply` has it
    warnings: tuple[str, ...] = ()
    task: str | None = None  # that Celery's beat sends

    @property
    def name(self) -> str:
        return str(self.job["name"])


@dataclass(frozen=True)
class LeftOut:
    where: str
    what: str
    reason: str


@dataclass(frozen=True)
class Note:
    """What holds for more than one job, and is said once."""

    where: str
    sentence: str


@dataclass(frozen=True)
class Imports:
    jobs: tuple[Imported, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[Note, ...] = ()


def plain_name(text: str) -> str:
    """A line without what no name may have."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())[:LONGEST_NAME].strip() or "job"
