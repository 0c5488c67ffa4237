"""What an edit of a job changes, as values: everything that is not named stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from enum import Enum
from typing import Any, Literal
from uuid import UUID

from jobs.errors import InvalidInput
from jobs.models import Delivery, Overlap
from jobs.recurrence import CatchUp, Kind
from jobs.retry_policy import parse_retry_policy, policy_values
from jobs.services.job_spec import DependencySpec, InputSpec, JobSpec, ScheduleSpec, SecretSpec


class _Kept(Enum):
    """None is a value of its own: no end, no limit, no calendar."""

    KEEP = "keep"


KEEP = _Kept.KEEP
Keep = Literal[_Kept.KEEP]


@dataclass(frozen=True, slots=True)
class ScheduleEdit:
    """With an id: what changes of that schedule. Without: a new one, with defaults for what is left out."""

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
    def says_nothing(self) -> bool:
        return not _given(self, but="id")

    def merged(self, present: ScheduleSpec) -> ScheduleSpec:
        changed = replace(present, **_given(self, but="id"))
        if changed.kind is not present.kind and self.starts_at is KEEP:
            # The start of one kind is the anchor or the bound of another: it would mean something else.
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
    requirements: Mapping[str, object] | Keep = KEEP  # what is left out of it stays too
    timeout_seconds: float | Keep = KEEP
    deadline_seconds: float | Keep | None = KEEP
    retry: Mapping[str, object] | Keep = KEEP  # likewise
    max_concurrency: int | Keep | None = KEEP
    overlap: Overlap | Keep = KEEP
    delivery: Delivery | Keep = KEEP
    network: bool | Keep = KEEP

    def merged(self, present: JobSpec, schedules: Mapping[UUID, ScheduleSpec]) -> JobSpec:
        """The job as it is asked to be; `schedules` are its present ones."""
        given = _given(self)
        if self.script is not KEEP and self.artifact is KEEP:
            given["artifact"] = None
        if self.stdin is not KEEP and self.stdin_artifact is KEEP:
            given["stdin_artifact"] = None
        if self.requirements is not KEEP:
            given["requirements"] = replace(present.requirements, **dict(self.requirements))  # type: ignore[arg-type]
        if self.retry is not KEEP:
            given["retry"] = parse_retry_policy(policy_values(present.retry) | dict(self.retry))
        if self.schedules is not KEEP:
            given["schedules"] = merged_schedules(schedules, self.schedules)
        return replace(present, **given)


def merged_schedules(present: Mapping[UUID, ScheduleSpec], edits: Sequence[ScheduleEdit]) -> list[ScheduleSpec]:
    """What each of the edits asks for; InvalidInput names an id that is unknown or comes twice."""
    specs: list[ScheduleSpec] = []
    seen: set[UUID] = set()
    for index, edit in enumerate(edits):
        if edit.id is None:
            specs.append(ScheduleSpec(**_given(edit, but="id")))
            continue
        if edit.id not in present:
            raise InvalidInput(
                f"schedules.{index}.id", "The job has no such schedule; leave the id out to add a new one."
            )
        if edit.id in seen:
            raise InvalidInput(f"schedules.{index}.id", "This schedule is named twice; name it once.")
        seen.add(edit.id)
        specs.append(edit.merged(present[edit.id]))
    return specs


def _given(edit: ScheduleEdit | JobEdit, *, but: str = "") -> dict[str, Any]:
    values = {field.name: getattr(edit, field.name) for field in fields(edit) if field.name != but}
    return {name: value for name, value in values.items() if value is not KEEP}
