"""Edits of a job as values: a field that is not given keeps its value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from enum import Enum
from typing import Any, Literal
from uuid import UUID

from jobs.domain.choices import Delivery, Overlap
from jobs.domain.errors import InvalidInput
from jobs.domain.job_spec import DependencySpec, InputSpec, JobSpec, ScheduleSpec, SecretSpec
from jobs.domain.recurrence import CatchUp, Kind
from jobs.domain.retry_policy import dump_retry_policy, parse_retry_policy


class _KeepType(Enum):
    """Marker for "not given"; None is a value: no end, no limit, no calendar."""

    KEEP = "keep"


KEEP = _KeepType.KEEP
Keep = Literal[_KeepType.KEEP]


@dataclass(frozen=True, slots=True)
class ScheduleEdit:
    """With an id, changes to that schedule; without, a new schedule with defaults for the fields not given."""

    id: UUID | None = None
    kind: Kind | Keep = KEEP
    expression: str | Keep = KEEP
    timezone: str | Keep = KEEP
    starts_at: datetime | Keep | None = KEEP
    ends_at: datetime | Keep | None = KEEP
    jitter_seconds: float | Keep = KEEP
    catch_up: CatchUp | Keep = KEEP
    catch_up_window_seconds: float | Keep | None = KEEP
    excluded_dates: Sequence[date] | Keep = KEEP
    calendar: str | Keep | None = KEEP
    max_count: int | Keep | None = KEEP

    @property
    def changes_nothing(self) -> bool:
        return not _given_fields(self, but="id")

    def apply_to(self, present: ScheduleSpec) -> ScheduleSpec:
        changed = replace(present, **_given_fields(self, but="id"))
        if changed.kind is not present.kind and self.starts_at is KEEP:
            # One kind uses the start as its anchor, another as a bound: the old value would change its meaning.
            return replace(changed, starts_at=None)
        return changed


@dataclass(frozen=True, slots=True)
class JobEdit:
    name: str | Keep = KEEP
    runtime: str | Keep = KEEP
    script: str | Keep = KEEP
    artifact: UUID | Keep = KEEP
    args: Sequence[str] | Keep = KEEP
    env: Mapping[str, str] | Keep = KEEP
    stdin: str | Keep | None = KEEP
    stdin_artifact: UUID | Keep | None = KEEP
    inputs: Sequence[InputSpec] | Keep = KEEP
    secrets: Sequence[SecretSpec] | Keep = KEEP
    schedules: Sequence[ScheduleEdit] | Keep = KEEP
    dependencies: Sequence[DependencySpec] | Keep = KEEP
    priority: int | Keep = KEEP
    queue: str | Keep = KEEP
    team: str | Keep | None = KEEP
    requirements: Mapping[str, object] | Keep = KEEP  # keys not given keep their values too
    timeout_seconds: float | Keep = KEEP
    deadline_seconds: float | Keep | None = KEEP
    retry: Mapping[str, object] | Keep = KEEP  # likewise
    max_concurrency: int | Keep | None = KEEP
    overlap: Overlap | Keep = KEEP
    delivery: Delivery | Keep = KEEP
    network: bool | Keep = KEEP

    def apply_to(self, present: JobSpec, schedules: Mapping[UUID, ScheduleSpec]) -> JobSpec:
        """Return the edited job; `schedules` are its current ones."""
        given = _given_fields(self)
        if self.script is not KEEP and self.artifact is KEEP:
            given["artifact"] = None
        if self.stdin is not KEEP and self.stdin_artifact is KEEP:
            given["stdin_artifact"] = None
        if self.requirements is not KEEP:
            given["requirements"] = replace(present.requirements, **dict(self.requirements))  # type: ignore[arg-type]
        if self.retry is not KEEP:
            given["retry"] = parse_retry_policy(dump_retry_policy(present.retry) | dict(self.retry))
        if self.schedules is not KEEP:
            given["schedules"] = merge_schedules(schedules, self.schedules)
        return replace(present, **given)


def merge_schedules(present: Mapping[UUID, ScheduleSpec], edits: Sequence[ScheduleEdit]) -> list[ScheduleSpec]:
    """Return the edited schedules; raise InvalidInput for an unknown or repeated id."""
    specs: list[ScheduleSpec] = []
    seen: set[UUID] = set()
    for index, edit in enumerate(edits):
        if edit.id is None:
            specs.append(ScheduleSpec(**_given_fields(edit, but="id")))
            continue
        if edit.id not in present:
            raise InvalidInput(f"schedules.{index}.id", "The job has no such schedule; omit the id to add a new one.")
        if edit.id in seen:
            raise InvalidInput(f"schedules.{index}.id", "This schedule is listed twice; list it once.")
        seen.add(edit.id)
        specs.append(edit.apply_to(present[edit.id]))
    return specs


def _given_fields(edit: ScheduleEdit | JobEdit, *, but: str = "") -> dict[str, Any]:
    values = {field.name: getattr(edit, field.name) for field in fields(edit) if field.name != but}
    return {name: value for name, value in values.items() if value is not KEEP}
