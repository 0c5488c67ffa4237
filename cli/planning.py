"""What applying a file would change: compared with what the server has, and nothing is sent but questions.

A job is known by its name among the jobs of whoever asks. Two of one name are refused: the file could mean either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from cli.answers import JsonObject, as_object, as_objects, optional_text, text, texts
from cli.errors import ClientError, UsageMistakeError
from cli.manifests import CalendarManifest, JobManifest, Manifest, Source
from cli.plan_checks import check_references
from cli.schedule_matching import Matching, described, match_schedules
from cli.values import is_id

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Calendar, Instant, Job

MOST_NAMED_ALIKE = 10_000
FIRINGS = 3


@dataclass(frozen=True)
class Change:
    """A field, as it is and as it would be; both of them JSON."""

    field: str
    old: object
    new: object


@dataclass(frozen=True)
class JobStep:
    job: JobManifest
    stored: Job | None
    changes: tuple[Change, ...]
    matching: Matching
    firings: tuple[Instant, ...] = field(compare=False)

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def where(self) -> str:
        return self.job.where

    @property
    def action(self) -> str:
        if self.stored is None:
            return "create"
        return "change" if self.changes else "unchanged"

    def changes_field(self, *names: str) -> bool:
        return self.stored is None or any(change.field in names for change in self.changes)


@dataclass(frozen=True)
class CalendarStep:
    calendar: CalendarManifest
    stored: Calendar | None

    @property
    def name(self) -> str:
        return self.calendar.name

    @property
    def where(self) -> str:
        return self.calendar.where

    @property
    def action(self) -> str:
        if self.stored is None:
            return "create"
        return "unchanged" if sorted(self.stored.dates) == list(self.calendar.dates) else "change"


@dataclass(frozen=True)
class Plan:
    calendars: tuple[CalendarStep, ...]
    jobs: tuple[JobStep, ...]  # each after those of them that it runs after
    known: Mapping[str, str]  # the ids of jobs that are there already, by name

    @property
    def steps(self) -> list[CalendarStep | JobStep]:
        """Jobs after the calendars that their schedules use."""
        return [*self.calendars, *self.jobs]

    @property
    def is_empty(self) -> bool:
        return all(step.action == "unchanged" for step in self.steps)


def make_plan(client: Client, manifest: Manifest) -> Plan:
    jobs = _ordered(manifest.jobs)
    return _Planner(client, manifest).plan(jobs)


def _ordered(jobs: Sequence[JobManifest]) -> list[JobManifest]:
    """Upstreams first, else as the file has them."""
    by_name = {job.name: job for job in jobs}
    sorter = TopologicalSorter(
        {job.name: [after.job for after in job.dependencies if after.job in by_name] for job in jobs}
    )
    try:
        sorter.prepare()
    except CycleError as error:
        names = " after ".join(reversed(error.args[1]))
        raise by_name[error.args[1][0]].place.refusal(f"These jobs run after each other: {names}.") from None
    places = {job.name: index for index, job in enumerate(jobs)}
    ordered: list[JobManifest] = []
    while ready := sorted(sorter.get_ready(), key=places.__getitem__):
        ordered += [by_name[name] for name in ready]
        sorter.done(*ready)
    return ordered


class _Planner:
    def __init__(self, client: Client, manifest: Manifest) -> None:
        self._client = client
        self._manifest = manifest
        self._owner = client.owner()
        self._hashes: dict[str, str] = {}
        listed = client.calendars(limit=MOST_NAMED_ALIKE)
        self._calendars = [each for each in listed if each.raw.get("owner", self._owner) == self._owner]
        self._calendar_names = {each.id: each.name for each in self._calendars}

    def plan(self, jobs: Sequence[JobManifest]) -> Plan:
        own = {each.name: each for each in self._calendars}
        calendars = tuple(CalendarStep(each, own.get(each.name)) for each in self._manifest.calendars)
        stored = {job.name: self._find(job.name, where=job.where) for job in jobs}
        known = {name: found.id for name, found in stored.items() if found is not None}
        for job in jobs:
            for after in job.dependencies:
                if after.job not in stored and after.job not in known and not is_id(after.job):
                    known[after.job] = self._upstream(after.job, job)
        steps = tuple(self._step(job, stored[job.name], known) for job in jobs)
        check_references(self._client, self._owner, steps)
        return Plan(calendars, steps, known)

    def _find(self, name: str, *, where: str) -> Job | None:
        named = jobs_named(self._client, self._owner, name)
        if len(named) > 1:
            raise UsageMistakeError(
                f"{where}: {len(named)} of your jobs are called {name!r}, and the file could mean any of them: "
                "rename or delete all but one."
            )
        return named[0] if named else None

    def _upstream(self, name: str, job: JobManifest) -> str:
        found = self._find(name, where=job.where)
        if found is None:
            raise UsageMistakeError(
                f"{job.where}: {job.name} runs after {name!r}, which is neither in this file nor among your jobs."
            )
        return found.id

    def _step(self, job: JobManifest, stored: Job | None, known: Mapping[str, str]) -> JobStep:
        if stored is not None and stored.status == "cancelled":
            raise UsageMistakeError(
                f"{job.where}: The job {job.name} is cancelled, and cannot be changed: "
                f"./punctual delete {stored.id}, and apply the file again."
            )
        rows = as_objects(stored.raw.get("schedules") or []) if stored else []
        matching = match_schedules(job.schedules, rows, self._calendar_names)
        changes = tuple(self._changes(job, stored, matching, known)) if stored else ()
        return JobStep(job, stored, changes, matching, tuple(self._firings(job, stored, matching)))

    def _changes(self, job: JobManifest, stored: Job, matching: Matching, known: Mapping[str, str]) -> Iterator[Change]:
        raw = stored.raw
        yield from _differing("runtime", raw.get("runtime"), job.runtime.value)
        yield from _differing("script", self._stored_hash(text(raw, "artifact")), hash_of(job.program))
        stdin = optional_text(raw, "stdin_artifact")
        yield from _differing("stdin", self._stored_hash(stdin), hash_of(job.stdin) if job.stdin else None)
        inputs = {text(each, "path"): self._stored_hash(text(each, "artifact")) for each in as_objects(raw["inputs"])}
        yield from _differing("inputs", inputs, {path: hash_of(Source(file=file)) for path, file in job.inputs})
        for name, wanted in job.fields.items():
            if isinstance(wanted, dict) and name in ("requirements", "retry"):
                present = as_object(raw.get(name))
                for key, value in wanted.items():
                    yield from _differing(f"{name}.{key}", _plain(present.get(key)), value)
            else:
                yield from _differing(name, raw.get(name), wanted)
        names = {own: name for name, own in known.items()}
        before = sorted(_edge(names.get(text(d, "job"), text(d, "job")), d) for d in as_objects(raw["dependencies"]))
        after = sorted(f"{names.get(each.job, each.job)}:{each.condition}" for each in job.dependencies)
        yield from _differing("dependencies", before, after)
        if matching.differs:
            yield Change(
                "schedules",
                [described(row, self._calendar_names) for row in as_objects(raw.get("schedules") or [])],
                [described(each, self._calendar_names) for each in job.schedules],
            )

    def _stored_hash(self, artifact_id: str | None) -> str | None:
        if artifact_id is None:
            return None
        if artifact_id not in self._hashes:
            self._hashes[artifact_id] = f"sha256:{self._client.artifact_sha256(artifact_id)}"
        return self._hashes[artifact_id]

    def _firings(self, job: JobManifest, stored: Job | None, matching: Matching) -> list[Instant]:
        paused = stored is not None and stored.status == "paused"
        if stored is not None and not matching.differs:
            return self._client.next_instants(stored.id, count=FIRINGS) if job.schedules and not paused else []
        previews = [(index, match.preview) for index, match in enumerate(matching.matches)]
        asked = [(index, self._with_dates(preview)) for index, preview in previews if preview is not None]
        if not asked:
            return []
        try:
            found = self._client.preview_schedules([preview for _, preview in asked], count=FIRINGS)
        except ClientError as error:
            if error.status != 400 or error.field is None:
                raise
            number = error.field.removeprefix("schedules.").partition(".")[0]
            if not number.isdecimal() or int(number) >= len(asked):
                raise job.place.refusal(str(error)) from None
            written = list(job.place.parts()["schedules"].entries())[asked[int(number)][0]]
            raise written.refusal(error.sentence) from None
        return [] if paused else found

    def _with_dates(self, schedule: Mapping[str, object]) -> dict[str, object]:
        """A calendar of the file need not be there yet, or not yet have its dates."""
        for calendar in self._manifest.calendars:
            if schedule.get("calendar") == calendar.name:
                dates = sorted({*texts(schedule, "excluded_dates"), *calendar.dates})
                return {**schedule, "excluded_dates": dates, "calendar": None}
        return dict(schedule)


def jobs_named(client: Client, owner: str, name: str) -> list[Job]:
    return [job for job in client.jobs(owner=owner, name=name, limit=MOST_NAMED_ALIKE) if job.name == name]


def hash_of(source: Source) -> str:
    if source.file is None:
        return f"sha256:{hashlib.sha256((source.text or '').encode()).hexdigest()}"
    try:
        with source.file.open("rb") as opened:
            return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"
    except OSError as error:
        raise UsageMistakeError(f"{source.file} cannot be read: {error.strerror or error}.") from None


def _differing(name: str, old: object, new: object) -> Iterator[Change]:
    if old != new:
        yield Change(name, old, new)


def _plain(value: object) -> object:
    """Lists in the policies of the server are sets."""
    return sorted(value) if isinstance(value, list) else value


def _edge(name: str, dependency: JsonObject) -> str:
    return f"{name}:{text(dependency, 'condition')}"
