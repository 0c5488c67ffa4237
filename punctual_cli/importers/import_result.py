"""The result of reading another scheduler: jobs in the shape of a manifest, skipped entries and notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_NAME_CHARS = 190  # a job name may have 200: this leaves room for a suffix


@dataclass(frozen=True)
class ImportedJob:
    where: str
    job: Mapping[str, object]  # in the shape of a manifest
    warnings: tuple[str, ...] = ()
    task: str | None = None  # the Celery task that beat sends

    @property
    def name(self) -> str:
        return str(self.job["name"])


@dataclass(frozen=True)
class SkippedEntry:
    where: str
    what: str
    reason: str


@dataclass(frozen=True)
class ImportNote:
    """A remark on more than one job."""

    where: str
    message: str


@dataclass(frozen=True)
class ImportResult:
    jobs: tuple[ImportedJob, ...]
    skipped: tuple[SkippedEntry, ...]
    notes: tuple[ImportNote, ...] = ()


def clean_name(text: str) -> str:
    """Return text as a valid job name."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())[:MAX_NAME_CHARS].strip() or "job"
