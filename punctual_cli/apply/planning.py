"""Planning: what applying a file would change on the server. Planning itself changes nothing.

A job is identified by its name among the caller's jobs. Two jobs of one name are refused, since either could be meant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from punctual_cli.apply.manifests import CalendarManifest, JobManifest, Manifest, Source
from punctual_cli.apply.reference_checks import check_references
from punctual_cli.apply.schedule_matching import MatchResult, describe_schedule, match_schedules
from punctual_cli.argument_parsing import is_uuid
from punctual_client.errors import PROGRAM, ApiError, UsageError
from punctual_client.json_fields import (
    JsonObject,
    as_object,
    as_objects,
    optional_text_field,
    text_field,
    text_list_field,
)

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.calendars import Calendar
    from punctual_client.resources.jobs import Instant, Job

MAX_ITEMS_LISTED = 10_000
MAX_FIRINGS_SHOWN = 3


@dataclass(frozen=True)
class FieldChange:
    """The old and the new JSON value of a field."""

    field: str
    old: object
    new: object


@dataclass(frozen=True)
class JobStep:
    job: JobManifest
    stored: Job | None
    changes: tuple[FieldChange, ...]
    matching: MatchResult
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
    jobs: tuple[JobStep, ...]  # upstream jobs first
    known: Mapping[str, str]  # ids of existing jobs by name

    @property
    def steps(self) -> list[CalendarStep | JobStep]:
        """Calendars come before the jobs whose schedules use them."""
        return [*self.calendars, *self.jobs]

    @property
    def is_empty(self) -> bool:
        return all(step.action == "unchanged" for step in self.steps)


def make_plan(client: Client, manifest: Manifest) -> Plan:
    jobs = _sort_by_dependencies(manifest.jobs)
    return _Planner(client, manifest).plan(jobs)


def _sort_by_dependencies(jobs: Sequence[JobManifest]) -> list[JobManifest]:
    """Sort upstream jobs first and keep the order of the file otherwise."""
    by_name = {job.name: job for job in jobs}
    sorter = TopologicalSorter(
        {job.name: [after.job for after in job.dependencies if after.job in by_name] for job in jobs}
    )
    try:
        sorter.prepare()
    except CycleError as error:
        names = " after ".join(reversed(error.args[1]))
        raise by_name[error.args[1][0]].place.refusal(f"These jobs run after each other: {names}.") from None
    positions = {job.name: index for index, job in enumerate(jobs)}
    ordered: list[JobManifest] = []
    while ready := sorted(sorter.get_ready(), key=positions.__getitem__):
        ordered += [by_name[name] for name in ready]
        sorter.done(*ready)
    return ordered


class _Planner:
    def __init__(self, client: Client, manifest: Manifest) -> None:
        self._client = client
        self._manifest = manifest
        self._owner = client.owner()
        self._hashes: dict[str, str] = {}
        listed = client.calendars(limit=MAX_ITEMS_LISTED)
        self._calendars = [each for each in listed if each.raw.get("owner", self._owner) == self._owner]
        self._calendar_names = {each.id: each.name for each in self._calendars}

    def plan(self, jobs: Sequence[JobManifest]) -> Plan:
        own = {each.name: each for each in self._calendars}
        calendars = tuple(CalendarStep(each, own.get(each.name)) for each in self._manifest.calendars)
        stored = {job.name: self._find(job.name, where=job.where) for job in jobs}
        known = {name: found.id for name, found in stored.items() if found is not None}
        for job in jobs:
            for after in job.dependencies:
                if after.job not in stored and after.job not in known and not is_uuid(after.job):
                    known[after.job] = self._find_upstream_id(after.job, job)
        steps = tuple(self._plan_job(job, stored[job.name], known) for job in jobs)
        check_references(self._client, self._owner, steps)
        return Plan(calendars, steps, known)

    def _find(self, name: str, *, where: str) -> Job | None:
        named = find_jobs_by_name(self._client, self._owner, name)
        if len(named) > 1:
            raise UsageError(
                f"{where}: {len(named)} of your jobs are called {name!r}, and the file could mean any of them: "
                "rename or delete all but one."
            )
        return named[0] if named else None

    def _find_upstream_id(self, name: str, job: JobManifest) -> str:
        found = self._find(name, where=job.where)
        if found is None:
            raise UsageError(
                f"{job.where}: {job.name} runs after {name!r}, which is neither in this file nor among your jobs."
            )
        return found.id

    def _plan_job(self, job: JobManifest, stored: Job | None, known: Mapping[str, str]) -> JobStep:
        if stored is not None and stored.status == "cancelled":
            raise UsageError(
                f"{job.where}: The job {job.name} is cancelled, and cannot be changed: "
                f"{PROGRAM} delete {stored.id}, and apply the file again."
            )
        rows = as_objects(stored.raw.get("schedules") or []) if stored else []
        matching = match_schedules(job.schedules, rows, self._calendar_names)
        changes = tuple(self._changes(job, stored, matching, known)) if stored else ()
        return JobStep(job, stored, changes, matching, tuple(self._firings(job, stored, matching)))

    def _changes(
        self, job: JobManifest, stored: Job, matching: MatchResult, known: Mapping[str, str]
    ) -> Iterator[FieldChange]:
        raw = stored.raw
        yield from _compare_field("runtime", raw.get("runtime"), job.runtime.value)
        yield from _compare_field("script", self._stored_hash(text_field(raw, "artifact")), hash_source(job.program))
        stdin = optional_text_field(raw, "stdin_artifact")
        yield from _compare_field("stdin", self._stored_hash(stdin), hash_source(job.stdin) if job.stdin else None)
        inputs = {
            text_field(each, "path"): self._stored_hash(text_field(each, "artifact"))
            for each in as_objects(raw["inputs"])
        }
        yield from _compare_field("inputs", inputs, {path: hash_source(Source(file=file)) for path, file in job.inputs})
        for name, wanted in job.fields.items():
            if isinstance(wanted, dict) and name in ("requirements", "retry"):
                present = as_object(raw.get(name))
                for key, value in wanted.items():
                    yield from _compare_field(f"{name}.{key}", _sort_if_list(present.get(key)), value)
            else:
                yield from _compare_field(name, raw.get(name), wanted)
        names = {job_id: name for name, job_id in known.items()}
        before = sorted(
            _format_dependency(names.get(text_field(d, "job"), text_field(d, "job")), d)
            for d in as_objects(raw["dependencies"])
        )
        after = sorted(f"{names.get(each.job, each.job)}:{each.condition}" for each in job.dependencies)
        yield from _compare_field("dependencies", before, after)
        if matching.differs:
            yield FieldChange(
                "schedules",
                [describe_schedule(row, self._calendar_names) for row in as_objects(raw.get("schedules") or [])],
                [describe_schedule(each, self._calendar_names) for each in job.schedules],
            )

    def _stored_hash(self, artifact_id: str | None) -> str | None:
        if artifact_id is None:
            return None
        if artifact_id not in self._hashes:
            self._hashes[artifact_id] = f"sha256:{self._client.artifact_sha256(artifact_id)}"
        return self._hashes[artifact_id]

    def _firings(self, job: JobManifest, stored: Job | None, matching: MatchResult) -> list[Instant]:
        paused = stored is not None and stored.status == "paused"
        if stored is not None and not matching.differs:
            return (
                self._client.next_instants(stored.id, count=MAX_FIRINGS_SHOWN) if job.schedules and not paused else []
            )
        previews = [(index, match.preview) for index, match in enumerate(matching.matches)]
        requested = [(index, self._with_dates(preview)) for index, preview in previews if preview is not None]
        if not requested:
            return []
        try:
            found = self._client.preview_schedules([preview for _, preview in requested], count=MAX_FIRINGS_SHOWN)
        except ApiError as error:
            if error.status != 400 or error.field is None:
                raise
            number = error.field.removeprefix("schedules.").partition(".")[0]
            if not number.isdecimal() or int(number) >= len(requested):
                raise job.place.refusal(str(error)) from None
            schedule = list(job.place.parts()["schedules"].entries())[requested[int(number)][0]]
            raise schedule.refusal(error.message) from None
        return [] if paused else found

    def _with_dates(self, schedule: Mapping[str, object]) -> dict[str, object]:
        """Replace a calendar of the file by its dates: the server may not have them yet."""
        for calendar in self._manifest.calendars:
            if schedule.get("calendar") == calendar.name:
                dates = sorted({*text_list_field(schedule, "excluded_dates"), *calendar.dates})
                return {**schedule, "excluded_dates": dates, "calendar": None}
        return dict(schedule)


def find_jobs_by_name(client: Client, owner: str, name: str) -> list[Job]:
    return [job for job in client.jobs(owner=owner, name=name, limit=MAX_ITEMS_LISTED) if job.name == name]


def hash_source(source: Source) -> str:
    if source.file is None:
        return f"sha256:{hashlib.sha256((source.text or '').encode()).hexdigest()}"
    try:
        with source.file.open("rb") as opened:
            return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"
    except OSError as error:
        raise UsageError(f"{source.file} cannot be read: {error.strerror or error}.") from None


def _compare_field(name: str, old: object, new: object) -> Iterator[FieldChange]:
    if old != new:
        yield FieldChange(name, old, new)


def _sort_if_list(value: object) -> object:
    """Sort a list: in the server's policies lists are sets."""
    return sorted(value) if isinstance(value, list) else value


def _format_dependency(name: str, dependency: JsonObject) -> str:
    return f"{name}:{text_field(dependency, 'condition')}"
