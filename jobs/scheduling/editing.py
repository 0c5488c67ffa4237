"""Edits of schedules, which all take effect at one time.

Instants due before that have fired. No instant fires twice, because the next one is searched for after that time; and
none is lost, because the new version of the history begins there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Max

from jobs.db import sql
from jobs.domain.errors import InvalidInput
from jobs.domain.job_edit import ScheduleEdit, merge_schedules
from jobs.domain.job_spec import ScheduleSpec
from jobs.domain.recurrence import CatchUp, Kind, next_delay_instant
from jobs.models import Calendar, DroppedRange, Execution, Job, JobState, Schedule, ScheduleVersion
from jobs.scheduling import schedules
from jobs.scheduling.schedules import recurrence_of

_TIMING = (
    "kind", "expression", "timezone", "starts_at", "ends_at", "jitter_seconds", "excluded_dates", "max_count",
)  # fmt: skip
_OTHER = ("catch_up", "catch_up_window_seconds", "calendar_id", "own_excluded_dates")
_COLUMNS = (
    "id", *_TIMING, *_OTHER, "settled_count", "next_instant", "next_fire_at", "quarantined_at", "quarantine_error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScheduleChange:
    old: Schedule
    new: Schedule  # with the same id
    paused: bool
    refusal: InvalidInput  # raised if it would never fire again
    may_be_exhausted: bool = False  # do not refuse it for that if it had no instant left before either

    @property
    def changes_anything(self) -> bool:
        return self.changes_instants or any(getattr(self.old, name) != getattr(self.new, name) for name in _OTHER)

    @property
    def takes_effect(self) -> bool:
        """Return whether a new version begins; not if the schedule stays in quarantine."""
        return self.new.quarantined_at is None and (self.changes_instants or self.old.quarantined_at is not None)

    @property
    def changes_instants(self) -> bool:
        """Return whether its instants differ, so that the history needs a new version."""
        return any(getattr(self.old, name) != getattr(self.new, name) for name in _TIMING)


def to_schedule_spec(schedule: Schedule) -> ScheduleSpec:
    return ScheduleSpec(
        kind=Kind(schedule.kind),
        expression=schedule.expression,
        timezone=schedule.timezone,
        starts_at=schedule.starts_at,
        ends_at=schedule.ends_at,
        jitter_seconds=schedule.jitter_seconds,
        catch_up=CatchUp(schedule.catch_up),
        catch_up_window_seconds=schedule.catch_up_window_seconds,
        excluded_dates=schedule.written_dates,
        calendar=str(schedule.calendar_id) if schedule.calendar_id else None,
        max_count=schedule.max_count,
    )


@dataclass(frozen=True, slots=True)
class EditPlan:
    """The changes of an edit to a job's schedules, not stored yet."""

    changes: Sequence[ScheduleChange]
    added: Sequence[Schedule]
    removed: Sequence[Schedule]

    @property
    def ending(self) -> set[UUID]:
        """Return the schedules whose current version ends."""
        return {c.old.id for c in self.changes if c.takes_effect} | {schedule.id for schedule in self.removed}


def plan_edits(job: Job, edits: Sequence[ScheduleEdit], calendars: Mapping[str, Calendar], now: datetime) -> EditPlan:
    """Plan the edits of a locked job's schedules; InvalidInput names the field of the request."""
    present = {schedule.id: schedule for schedule in schedules.lock_schedules(job)}
    specs = merge_schedules({key: to_schedule_spec(row) for key, row in present.items()}, edits)
    changes: list[ScheduleChange] = []
    added: list[Schedule] = []
    for index, (edit, spec) in enumerate(zip(edits, specs, strict=True)):
        calendar = calendars[spec.calendar] if spec.calendar is not None else None
        if edit.id is None:
            added.append(schedules.prepare_schedule(index, spec, now, calendar=calendar))
            continue
        old = present.pop(edit.id)
        if edit.changes_nothing:
            continue
        change = _build_change(index, old, spec, now, calendar=calendar, paused=job.state == JobState.PAUSED)
        if change.changes_anything or old.quarantined_at is not None:
            changes.append(change)
    return EditPlan(changes, added, list(present.values()))


def apply_edits(job: Job, plan: EditPlan, now: datetime) -> list[Schedule]:
    """Store the plan; return the schedules whose next firing may differ."""
    apply_changes(plan.changes, now)
    schedules.create_schedules(job, plan.added, now, paused=job.state == JobState.PAUSED)
    for schedule in plan.removed:
        schedule.refresh_from_db(fields=["settled_count"])
    schedules.end_schedules(plan.removed, now)
    schedules.delete_schedules(plan.removed, now)
    return [change.new for change in plan.changes] + list(plan.added)


def _build_change(
    index: int, old: Schedule, spec: ScheduleSpec, now: datetime, *, calendar: Calendar | None, paused: bool
) -> ScheduleChange:
    new = schedules.build_schedule(index, spec, now, schedule_id=old.id, calendar=calendar)
    new.job_id, new.created_at = old.job_id, old.created_at
    refusal = InvalidInput(
        f"schedules.{index}.{schedules.find_exhausted_field(new, now) if new.max_count is None else 'max_count'}",
        f"The schedule {old.id} would never fire again: it has no instant left; give it more,"
        " or leave it out of the list to delete it.",
    )
    return ScheduleChange(old, new, paused, refusal)


def apply_changes(changes: Sequence[ScheduleChange], now: datetime) -> None:
    """Write locked rows, whose instants up to now have fired, and their history."""
    stored = Schedule.objects.in_bulk([change.old.id for change in changes])
    for change in changes:
        row = stored[change.old.id]
        change.old.settled_count, change.new.settled_count = row.settled_count, row.settled_count
        schedules.arm(change.old, row.next_instant)
    effective = {c.old.id: c for c in changes if c.takes_effect}
    paused_since = schedules.read_paused_since([c.old for c in effective.values()])
    for change in changes:
        old, new = change.old, change.new
        if old.id in effective:
            _rearm(change, paused_since.get(old.id), now)
        else:
            new.next_instant, new.next_fire_at = old.next_instant, old.next_fire_at
    ends = defaultdict[datetime, list[Schedule]](list)
    for change in effective.values():
        ends[_find_version_end(change, now)].append(change.old)
    for end, rows in ends.items():
        schedules.end_versions(rows, end)
    rewritten = [{name: getattr(change.new, name) for name in _COLUMNS} for change in changes]
    if rewritten:
        # str keeps the microseconds of timestamps, which Django's encoder truncates.
        sql.execute("update_schedules", {"rows": json.dumps(rewritten, default=str)})
    schedules.begin_versions([c.new for c in effective.values() if not c.paused], now)
    schedules.begin_versions([c.new for c in effective.values() if c.paused], now, paused=True)


def _rearm(change: ScheduleChange, paused_since: datetime | None, now: datetime) -> None:
    old, new = change.old, change.new
    if paused_since is not None:
        # By the values in force during the pause.
        new.settled_count += schedules.drop_paused_instants(old, paused_since, now)
    upcoming, under_way = _find_next_instant(old, new, now)
    if upcoming is None and not under_way:
        was_exhausted = old.next_instant is None and paused_since is None
        if not (change.may_be_exhausted and was_exhausted):
            raise change.refusal
    schedules.arm(new, None if change.paused else upcoming)


def _find_next_instant(old: Schedule, new: Schedule, now: datetime) -> tuple[datetime | None, bool]:
    """Return its next instant, and whether a run under way will arm it instead."""
    if new.max_count is not None and new.settled_count >= new.max_count:
        return None, False
    if new.kind != Kind.DELAY:
        return recurrence_of(new).next_after(now), False
    if schedules.has_unfinished_run(new):
        return None, new.ends_at is None or new.ends_at > now
    ended_at = _read_last_run_end(old) if old.kind == Kind.DELAY else None
    if ended_at is None:
        return schedules.find_first_instant(new, now), False
    due = next_delay_instant(recurrence_of(new), ended_at)
    return (due if due is None or due > now else schedules.find_first_instant(new, now)), False


def _read_last_run_end(schedule: Schedule) -> datetime | None:
    runs = Execution.objects.filter(schedule=schedule).order_by("-scheduled_for")
    return runs.values_list("ended_at", flat=True).first()


def _find_version_end(change: ScheduleChange, now: datetime) -> datetime:
    """Return when the former version ended."""
    if change.old.quarantined_at is None:
        return now if change.paused else schedules.version_boundary(change.new, now)
    # No version was in force during the quarantine, so the former one ended with its last fired or dropped instant.
    fired = Execution.objects.filter(schedule=change.old).aggregate(last=Max("scheduled_for"))["last"]
    dropped = DroppedRange.objects.filter(schedule=change.old).aggregate(last=Max("last"))["last"]
    begun = ScheduleVersion.objects.filter(schedule=change.old).aggregate(last=Max("from_at"))["last"]
    last: datetime = max(moment for moment in (fired, dropped, begun) if moment is not None)
    return last
