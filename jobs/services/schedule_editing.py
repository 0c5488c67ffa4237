"""Edits of schedules: what changes comes into force at one moment, up to which everything was settled before.

A settled instant never fires again, because the next one is looked for after that moment; and none after it is left
out, because the new version of the history begins there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Max

from jobs import sql
from jobs.errors import InvalidInput
from jobs.models import Calendar, DroppedRange, Execution, Job, JobState, Schedule, ScheduleVersion
from jobs.recurrence import CatchUp, Kind, rearmed
from jobs.services import schedules
from jobs.services.job_edit import ScheduleEdit, merged_schedules
from jobs.services.job_spec import ScheduleSpec
from jobs.services.schedules import recurrence_of

_TIMING = (
    "kind", "expression", "timezone", "starts_at", "ends_at", "jitter_seconds", "excluded_dates", "max_count",
)  # fmt: skip
_REST = ("catch_up", "catch_up_window_seconds", "calendar_id", "own_excluded_dates")
_WRITTEN = (
    "id", *_TIMING, *_REST, "settled_count", "next_instant", "next_fire_at", "quarantined_at", "quarantine_error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    old: Schedule
    new: Schedule  # of the same id
    paused: bool
    refusal: InvalidInput  # if it would not fire any more
    may_be_over: bool = False  # and is not refused for it, if it was over before

    @property
    def is_one(self) -> bool:
        return self.moves or any(getattr(self.old, name) != getattr(self.new, name) for name in _REST)

    @property
    def comes_into_force(self) -> bool:
        """One that stays in quarantine does not."""
        return self.new.quarantined_at is None and (self.moves or self.old.quarantined_at is not None)

    @property
    def moves(self) -> bool:
        """Whether other instants come of it, so that the history needs a new version."""
        return any(getattr(self.old, name) != getattr(self.new, name) for name in _TIMING)


def spec_of(schedule: Schedule) -> ScheduleSpec:
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
class Plan:
    """What an edit makes of a job's schedules; nothing of it is stored yet."""

    changes: Sequence[Change]
    added: Sequence[Schedule]
    removed: Sequence[Schedule]

    @property
    def ending(self) -> set[UUID]:
        """Those of which what is in force now ends."""
        return {c.old.id for c in self.changes if c.comes_into_force} | {schedule.id for schedule in self.removed}


def plan_edits(job: Job, edits: Sequence[ScheduleEdit], calendars: Mapping[str, Calendar], now: datetime) -> Plan:
    """Of a locked job; InvalidInput names what is wrong, and where in the request it stands."""
    present = {schedule.id: schedule for schedule in schedules.locked(job)}
    wanted = merged_schedules({key: spec_of(row) for key, row in present.items()}, edits)
    changes: list[Change] = []
    added: list[Schedule] = []
    for index, (edit, spec) in enumerate(zip(edits, wanted, strict=True)):
        calendar = calendars[spec.calendar] if spec.calendar is not None else None
        if edit.id is None:
            added.append(schedules.plan_schedule(index, spec, now, calendar=calendar))
            continue
        old = present.pop(edit.id)
        if edit.says_nothing:
            continue
        change = _change(index, old, spec, now, calendar=calendar, paused=job.state == JobState.PAUSED)
        if change.is_one or old.quarantined_at is not None:
            changes.append(change)
    return Plan(changes, added, list(present.values()))


def apply_edits(job: Job, plan: Plan, now: datetime) -> list[Schedule]:
    """After everything up to now was settled; returns those that may be due at another moment than before."""
    put_in_force(plan.changes, now)
    schedules.create_schedules(job, plan.added, now, paused=job.state == JobState.PAUSED)
    for schedule in plan.removed:
        schedule.refresh_from_db(fields=["settled_count"])
    schedules.end_schedules(plan.removed, now)
    schedules.delete_schedules(plan.removed, now)
    return [change.new for change in plan.changes] + list(plan.added)


def _change(
    index: int, old: Schedule, spec: ScheduleSpec, now: datetime, *, calendar: Calendar | None, paused: bool
) -> Change:
    new = schedules.shape_schedule(index, spec, now, schedule_id=old.id, calendar=calendar)
    new.job_id, new.created_at = old.job_id, old.created_at
    refusal = InvalidInput(
        f"schedules.{index}.{schedules.field_that_ended(new, now) if new.max_count is None else 'max_count'}",
        f"The schedule {old.id} would never fire again: it has no instant left; give it more,"
        " or leave it out of the list to delete it.",
    )
    return Change(old, new, paused, refusal)


def put_in_force(changes: Sequence[Change], now: datetime) -> None:
    """Writes the rows and their history; all of them locked, and settled up to now."""
    settled = Schedule.objects.in_bulk([change.old.id for change in changes])
    for change in changes:
        row = settled[change.old.id]
        change.old.settled_count, change.new.settled_count = row.settled_count, row.settled_count
        schedules.arm(change.old, row.next_instant)
    moving = {c.old.id: c for c in changes if c.comes_into_force}
    since = schedules.paused_since([c.old for c in moving.values()])
    for change in changes:
        old, new = change.old, change.new
        if old.id in moving:
            _rearm(change, since.get(old.id), now)
        else:
            new.next_instant, new.next_fire_at = old.next_instant, old.next_fire_at
    ends = defaultdict[datetime, list[Schedule]](list)
    for change in moving.values():
        ends[_end(change, now)].append(change.old)
    for end, rows in ends.items():
        schedules.end_versions(rows, end)
    written = [{name: getattr(change.new, name) for name in _WRITTEN} for change in changes]
    if written:
        # As text, moments keep their microseconds, which Django's own encoder cuts off.
        sql.execute("rewrite_schedules", {"rows": json.dumps(written, default=str)})
    schedules.begin_versions([c.new for c in moving.values() if not c.paused], now)
    schedules.begin_versions([c.new for c in moving.values() if c.paused], now, paused=True)


def _rearm(change: Change, paused_since: datetime | None, now: datetime) -> None:
    old, new = change.old, change.new
    if paused_since is not None:
        # With the values that were in force while it was paused.
        new.settled_count += schedules.drop_paused(old, paused_since, now)
    coming, under_way = _coming(old, new, now)
    if coming is None and not under_way:
        was_over = old.next_instant is None and paused_since is None
        if not (change.may_be_over and was_over):
            raise change.refusal
    schedules.arm(new, None if change.paused else coming)


def _coming(old: Schedule, new: Schedule, now: datetime) -> tuple[datetime | None, bool]:
    """Its next instant, and whether a run under way will arm it instead."""
    if new.max_count is not None and new.settled_count >= new.max_count:
        return None, False
    if new.kind != Kind.DELAY:
        return recurrence_of(new).next_after(now), False
    if schedules.is_under_way(new):
        return None, new.ends_at is None or new.ends_at > now
    ended_at = _last_end(old) if old.kind == Kind.DELAY else None
    if ended_at is None:
        return schedules.first_of(new, now), False
    due = rearmed(recurrence_of(new), ended_at)
    return (due if due is None or due > now else schedules.first_of(new, now)), False


def _last_end(schedule: Schedule) -> datetime | None:
    runs = Execution.objects.filter(schedule=schedule).order_by("-scheduled_for")
    return runs.values_list("ended_at", flat=True).first()


def _end(change: Change, now: datetime) -> datetime:
    """When what was in force before has ended."""
    if change.old.quarantined_at is None:
        return now if change.paused else schedules.boundary(change.new, now)
    # Since its recurrence failed nothing was in force; how far it came before is what it settled last.
    fired = Execution.objects.filter(schedule=change.old).aggregate(last=Max("scheduled_for"))["last"]
    dropped = DroppedRange.objects.filter(schedule=change.old).aggregate(last=Max("last"))["last"]
    begun = ScheduleVersion.objects.filter(schedule=change.old).aggregate(last=Max("from_at"))["last"]
    last: datetime = max(moment for moment in (fired, dropped, begun) if moment is not None)
    return last
