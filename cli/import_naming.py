"""What imported jobs are called: a name stays with what is run, wherever its line stands and whatever stands around it.

A job of that name that runs something else may have been made by hand, edited since, or come from another file. It is
not changed unless the user says so.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from cli.answers import as_object, as_objects, optional_text, text
from cli.imported import Imported, Imports, LeftOut
from cli.manifests import Source
from cli.planning import hash_of, jobs_named

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Job

MOST_SCHEDULES = 50
MARK_LETTERS = 6


class Clash(Enum):
    """What becomes of an import whose name a job has that runs something else."""

    LEAVE_OUT = "leave out"
    REPLACE = "replace"
    BESIDE = "beside"


class Known:
    """The jobs of whoever imports."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._owner = client.owner()

    def named(self, name: str) -> list[Job]:
        return jobs_named(self._client, self._owner, name)

    def is_made_of(self, job: Job, each: Imported, *, with_env: bool) -> bool:
        """A job of cron's is told by its program; one of beat's, which all have one program, by its task and broker."""
        env = as_object(job.raw.get("env") or {})
        if with_env and env != each.job.get("env", {}):
            return False
        if each.task is not None:
            return env.get("BEAT_TASK") == each.task and _secrets(job.raw) == _secrets(each.job)
        program, stdin = text(job.raw, "artifact"), optional_text(job.raw, "stdin_artifact")
        return self._hash(program) == _hash(each.job["script"]) and self._hash(stdin) == _hash(each.job.get("stdin"))

    def _hash(self, artifact_id: str | None) -> str | None:
        return None if artifact_id is None else f"sha256:{self._client.artifact_sha256(artifact_id)}"


def name_jobs(imports: Imports, known: Known | None, clash: Clash) -> Imports:
    """Without a server that could be asked, only those of the same import are told apart."""
    alike: dict[str, list[Imported]] = {}
    for each in _combined(imports.jobs):
        alike.setdefault(each.name, []).append(each)
    named = [each for jobs in alike.values() for each in _named(jobs, known, clash)]
    left_out = [each for each in named if isinstance(each, LeftOut)]
    jobs = tuple(each for each in named if isinstance(each, Imported))
    return replace(imports, jobs=jobs, left_out=(*imports.left_out, *left_out))


def _combined(jobs: Sequence[Imported]) -> Iterator[Imported]:
    """What differs in nothing but its times is one job with several schedules: else only its place would tell it."""
    same: dict[str, list[Imported]] = {}
    for each in jobs:
        rest = {name: value for name, value in each.job.items() if name != "schedules"}
        same.setdefault(json.dumps(rest, sort_keys=True), []).append(each)
    for first, *others in same.values():
        together = [first, *others]
        yield replace(
            first,
            where=", ".join(each.where for each in together),
            job={**first.job, "schedules": [one for each in together for one in as_objects(each.job["schedules"])]},
            warnings=tuple(dict.fromkeys(warning for each in together for warning in each.warnings)),
        )


def _named(jobs: Sequence[Imported], known: Known | None, clash: Clash) -> Iterator[Imported | LeftOut]:
    """`jobs` would all have the same name. What one of them has already made keeps the name that it has."""
    name = jobs[0].name
    twins = Counter(_identity(each) for each in jobs)
    found = known.named(name) if known else []
    holder = next((each for each in jobs if _made(known, found, each, with_env=twins[_identity(each)] > 1)), None)
    for each in jobs:
        own = f"{name} {_mark(each, with_env=twins[_identity(each)] > 1)}"
        there = known.named(own) if known and each is not holder else []
        if len(as_objects(each.job["schedules"])) > MOST_SCHEDULES:
            yield LeftOut(each.where, name, f"It has more than the {MOST_SCHEDULES} schedules that a job may have.")
        elif each is holder:
            yield each
        elif there:
            ours = clash is Clash.REPLACE or _made(known, there, each, with_env=False)
            yield _called(each, own) if ours else _clashing(each, own)
        elif len(jobs) > 1:
            yield _called(each, own) if holder or not found else _warned(_called(each, own), name)
        elif not found or clash is Clash.REPLACE:
            yield each
        else:
            yield _called(each, own) if clash is Clash.BESIDE else _clashing(each, name)


def _made(known: Known | None, found: Sequence[Job], each: Imported, *, with_env: bool) -> bool:
    return known is not None and any(known.is_made_of(job, each, with_env=with_env) for job in found)


def _called(each: Imported, name: str) -> Imported:
    return replace(each, job={**each.job, "name": name})


def _warned(each: Imported, name: str) -> Imported:
    warning = f"Your job {name} runs something else, and stays as it is: delete it if it was made of this line."
    return replace(each, warnings=(warning, *each.warnings))


def _clashing(each: Imported, name: str) -> LeftOut:
    other = "" if name != each.name else ", --beside makes another beside it"
    return LeftOut(each.where, name, f"Your job {name} runs something else: --replace makes it run this{other}.")


def _identity(each: Imported) -> tuple[str, ...]:
    if each.task is not None:
        return (each.task, *_secrets(each.job))
    return (str(each.job["script"]), str(each.job.get("stdin", "")))


def _mark(each: Imported, *, with_env: bool) -> str:
    told = [_identity(each), each.job.get("env", {}), each.job["runtime"]] if with_env else [_identity(each)]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:MARK_LETTERS]


def _secrets(job: Mapping[str, object]) -> list[str]:
    return sorted(text(grant, "name") for grant in as_objects(job.get("secrets") or []))


def _hash(written: object) -> str | None:
    return None if written is None else hash_of(Source(text=str(written)))
