"""Names of imported jobs: an import of the same program gets the same name, wherever its line is in the file.

An existing job of that name that runs something else may have been created by hand, edited or imported from another
file. It is not changed unless the user asks for it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from punctual_cli.apply.manifests import Source
from punctual_cli.apply.planning import find_jobs_by_name, hash_source
from punctual_cli.importers.import_result import ImportedJob, ImportResult, SkippedEntry
from punctual_client.json_fields import as_object, as_objects, optional_text_field, text_field

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.jobs import Job

MAX_SCHEDULES_PER_JOB = 50
DIGEST_CHARS = 6


class OnConflict(Enum):
    """What to do when a job of the same name runs something else."""

    SKIP = "skip"
    REPLACE = "replace"
    KEEP_BOTH = "keep-both"


class ExistingJobs:
    """The jobs of the importing user."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._owner = client.owner()

    def by_name(self, name: str) -> list[Job]:
        return find_jobs_by_name(self._client, self._owner, name)

    def is_same_job(self, job: Job, imported: ImportedJob, *, with_env: bool) -> bool:
        """Compare cron jobs by their program, beat jobs, which share one program, by task and broker."""
        env = as_object(job.raw.get("env") or {})
        if with_env and env != imported.job.get("env", {}):
            return False
        if imported.task is not None:
            return env.get("BEAT_TASK") == imported.task and _secret_names(job.raw) == _secret_names(imported.job)
        program, stdin = text_field(job.raw, "artifact"), optional_text_field(job.raw, "stdin_artifact")
        return self._hash(program) == _hash_text(imported.job["script"]) and self._hash(stdin) == _hash_text(
            imported.job.get("stdin")
        )

    def _hash(self, artifact_id: str | None) -> str | None:
        return None if artifact_id is None else f"sha256:{self._client.artifact_sha256(artifact_id)}"


def name_jobs(imports: ImportResult, known: ExistingJobs | None, on_conflict: OnConflict) -> ImportResult:
    """Give every import a unique name; without a server only among the imports themselves."""
    by_name: dict[str, list[ImportedJob]] = {}
    for each in _merge_schedules(imports.jobs):
        by_name.setdefault(each.name, []).append(each)
    named = [each for jobs in by_name.values() for each in _resolve_names(jobs, known, on_conflict)]
    skipped = [each for each in named if isinstance(each, SkippedEntry)]
    jobs = tuple(each for each in named if isinstance(each, ImportedJob))
    return replace(imports, jobs=jobs, skipped=(*imports.skipped, *skipped))


def _merge_schedules(jobs: Sequence[ImportedJob]) -> Iterator[ImportedJob]:
    """Merge imports that differ only in their schedules: nothing else could identify them."""
    groups: dict[str, list[ImportedJob]] = {}
    for each in jobs:
        rest = {name: value for name, value in each.job.items() if name != "schedules"}
        groups.setdefault(json.dumps(rest, sort_keys=True), []).append(each)
    for first, *others in groups.values():
        group = [first, *others]
        yield replace(
            first,
            where=", ".join(each.where for each in group),
            job={
                **first.job,
                "schedules": [schedule for each in group for schedule in as_objects(each.job["schedules"])],
            },
            warnings=tuple(dict.fromkeys(warning for each in group for warning in each.warnings)),
        )


def _resolve_names(
    jobs: Sequence[ImportedJob], known: ExistingJobs | None, on_conflict: OnConflict
) -> Iterator[ImportedJob | SkippedEntry]:
    """Name `jobs`, which share one name; a job that an earlier import created keeps its name."""
    name = jobs[0].name
    twins = Counter(_identity(each) for each in jobs)
    found = known.by_name(name) if known else []
    holder = next(
        (each for each in jobs if _is_existing(known, found, each, with_env=twins[_identity(each)] > 1)), None
    )
    for each in jobs:
        unique_name = f"{name} {_digest(each, with_env=twins[_identity(each)] > 1)}"
        existing = known.by_name(unique_name) if known and each is not holder else []
        if len(as_objects(each.job["schedules"])) > MAX_SCHEDULES_PER_JOB:
            yield SkippedEntry(
                each.where, name, f"It has more than the {MAX_SCHEDULES_PER_JOB} schedules that a job may have."
            )
        elif each is holder:
            yield each
        elif existing:
            may_update = on_conflict is OnConflict.REPLACE or _is_existing(known, existing, each, with_env=False)
            yield _rename(each, unique_name) if may_update else _skip_conflicting(each, unique_name)
        elif len(jobs) > 1:
            yield (
                _rename(each, unique_name)
                if holder or not found
                else _add_conflict_warning(_rename(each, unique_name), name)
            )
        elif not found or on_conflict is OnConflict.REPLACE:
            yield each
        else:
            yield _rename(each, unique_name) if on_conflict is OnConflict.KEEP_BOTH else _skip_conflicting(each, name)


def _is_existing(known: ExistingJobs | None, found: Sequence[Job], imported: ImportedJob, *, with_env: bool) -> bool:
    return known is not None and any(known.is_same_job(job, imported, with_env=with_env) for job in found)


def _rename(imported: ImportedJob, name: str) -> ImportedJob:
    return replace(imported, job={**imported.job, "name": name})


def _add_conflict_warning(imported: ImportedJob, name: str) -> ImportedJob:
    warning = f"Your job {name} runs something else and is not changed: delete it if it was created from this line."
    return replace(imported, warnings=(warning, *imported.warnings))


def _skip_conflicting(imported: ImportedJob, name: str) -> SkippedEntry:
    other = "" if name != imported.name else ", --keep-both creates another job"
    return SkippedEntry(
        imported.where, name, f"Your job {name} runs something else: --replace makes it run this{other}."
    )


def _identity(imported: ImportedJob) -> tuple[str, ...]:
    if imported.task is not None:
        return (imported.task, *_secret_names(imported.job))
    return (str(imported.job["script"]), str(imported.job.get("stdin", "")))


def _digest(imported: ImportedJob, *, with_env: bool) -> str:
    key = (
        [_identity(imported), imported.job.get("env", {}), imported.job["runtime"]]
        if with_env
        else [_identity(imported)]
    )
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:DIGEST_CHARS]


def _secret_names(job: Mapping[str, object]) -> list[str]:
    return sorted(text_field(grant, "name") for grant in as_objects(job.get("secrets") or []))


def _hash_text(text: object) -> str | None:
    return None if text is None else hash_source(Source(text=str(text)))
