"""Fires schedules: turns due instants into executions.

Any number of beats fire at once. Each locks due schedules, skipping locked ones, inserts their executions and advances
them in one transaction. An instant fires exactly once because its schedule's row is locked meanwhile, and because a
unique key allows one execution per schedule and instant.

No schedule delays another: firing skips jobs that another transaction has locked and has short timeouts, bisects a
batch that fails down to the schedule at fault, and puts on-time schedules before catch-up.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import Enum
from uuid import UUID

from django.db import DatabaseError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from jobs.db import due_window, sql
from jobs.db.transactions import CONTENTION_SQLSTATES, has_sqlstate, with_timeouts
from jobs.domain import limits
from jobs.domain.errors import Conflict
from jobs.domain.recurrence import CatchUp, Kind, add_jitter
from jobs.domain.states import State
from jobs.execution import completion, dependents, transitions
from jobs.models import DroppedRange, Schedule
from jobs.scheduling import overlap as overlaps
from jobs.scheduling.advancing import Advance, DueSchedule, advance, quarantine
from jobs.scheduling.held_schedules import HeldSchedules

logger = logging.getLogger(__name__)

# Called after the commit with what was found due and when each of these schedules is due next.
Announce = Callable[[Sequence[due_window.DueEntry], Sequence[due_window.DueEntry]], None]

_UNBOUNDED_SECONDS = 4e9
# Errors of the server, which firing fewer schedules cannot avoid: connection, disk space, permissions, read-only.
_SERVER_SQLSTATES = ("08", "25", "28", "53", "57P", "58", "XX")
# Errors that a schedule's own values can cause: bad data, violated constraints.
_DATA_SQLSTATES = ("22", "23")


class Lane(Enum):
    """Range of lateness, in seconds, of the schedules that a batch fires."""

    ON_TIME = (0.0, limits.CATCH_UP_GRACE_SECONDS)
    CATCH_UP = (limits.CATCH_UP_GRACE_SECONDS, _UNBOUNDED_SECONDS)
    ANY = (0.0, _UNBOUNDED_SECONDS)


@dataclass(frozen=True, slots=True)
class FireResult:
    schedules: int = 0
    fired: int = 0
    missed: int = 0
    skipped: int = 0
    quarantined: int = 0
    postponed: int = 0  # schedules held back: their job is locked, or they fail
    more: bool = False  # more may be due right now

    def __add__(self, other: FireResult) -> FireResult:
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "more"}
        return FireResult(**sums, more=self.more or other.more)


@dataclass(frozen=True, slots=True)
class _CurrentVersion:
    """The current version of a job, read under the locks of its schedules."""

    job_id: UUID
    version_id: UUID
    overlap: str
    max_concurrency: int | None
    has_upstreams: bool  # its executions wait for those of other jobs

    def policy(self, kind: str) -> overlaps.OverlapPolicy:
        """Return the policy; none for a fixed delay, which a skipped instant would never arm again."""
        return overlaps.OverlapPolicy(None if kind == Kind.DELAY else self.overlap, self.max_concurrency)


_CurrentVersions = dict[UUID, _CurrentVersion]


@dataclass(frozen=True, slots=True)
class _Batch:
    limit: int
    lane: Lane = Lane.ANY
    only: Sequence[UUID] | None = None
    announce: Announce = due_window.announce_fired

    def split(self) -> list[_Batch]:
        ids = self.only or ()
        middle = len(ids) // 2
        return [replace(self, only=part) for part in (ids[:middle], ids[middle:])]


class _BatchFailed(Exception):
    """Carries the schedules of the failed batch and the error."""

    def __init__(self, ids: Sequence[UUID], error: Exception) -> None:
        super().__init__()
        self.ids = ids
        self.error = error


def fire_due_schedules(
    *,
    limit: int = limits.FIRE_BATCH_SCHEDULES,
    lanes: Sequence[Lane] = (Lane.ON_TIME, Lane.CATCH_UP),
    held: HeldSchedules | None = None,
    late_first: bool = False,
    announce: Announce = due_window.announce_fired,
) -> FireResult:
    """Fire one batch of each lane, until one is full.

    A batch is one transaction; a crash leaves its instants due. Schedules in `held` are skipped, and stuck schedules
    are added to it. `late_first` reverses the lanes.
    """
    held = HeldSchedules() if held is None else held
    result = FireResult()
    for lane in reversed(lanes) if late_first else lanes:
        result += _fire_bisecting_failures(_Batch(limit, lane, announce=announce), held)
        if result.more:
            break
    return result


def fire_held_schedules(
    held: HeldSchedules,
    *,
    limit: int = limits.FIRE_BATCH_SCHEDULES,
    announce: Announce = due_window.announce_fired,
) -> FireResult:
    """Retry held schedules whose backoff has ended, apart from all others."""
    ids = held.due(limit)
    return _fire_bisecting_failures(_Batch(limit, only=ids, announce=announce), held) if ids else FireResult()


def fire_backlog(schedules: QuerySet[Schedule]) -> None:
    """Fire the backlog in bounded transactions, before a command that holds locks.

    Only schedules that catch up with all instants have a backlog that is costly.
    """
    late = Now() - timedelta(seconds=limits.CATCH_UP_GRACE_SECONDS)
    backlogged = schedules.filter(catch_up=CatchUp.ALL, next_instant__lte=late)
    ids = list(backlogged.values_list("id", flat=True)[: limits.FIRE_BATCH_SCHEDULES])
    deadline = time.monotonic() + limits.FIRE_BACKLOG_SECONDS
    while ids and time.monotonic() < deadline:
        if not _fire_bisecting_failures(_Batch(len(ids), only=ids), HeldSchedules()).more:
            break


def fire_job(job_id: UUID, *, until: datetime, ending: Sequence[UUID] | None = None) -> None:
    """Fire every instant of a job up to `until`, in the caller's transaction.

    It precedes a change of the job or its schedules: later instants belong to the new version. Jitter delays only
    schedules that continue unchanged, which are those not in `ending` (None: all of them end). To bound the
    transaction, instants beyond a limit are dropped and counted, even of schedules that catch up with all.
    """
    wanted = {"job_id": job_id, "until": until, "ending": ending if ending is None else list(ending)}
    room = limits.FIRE_BATCH_INSTANTS
    while due := sql.fetch("lock_due_schedules_of_job", wanted, DueSchedule):
        taken = [replace(s, waits_for_jitter=ending is not None and s.id not in ending) for s in due]
        if room <= 0:
            logger.warning("Job %s has too many due instants for one transaction; dropping the rest", job_id)
            taken = [replace(schedule, catch_up=CatchUp.NONE.value) for schedule in taken]
        in_force = _read_current_versions([job_id])
        if job_id not in in_force:
            raise Conflict("Another transaction holds the job's version or its queue; try again in a moment.")
        settled = _fire_locked(taken, in_force, room if room > 0 else limits.FIRE_BATCH_INSTANTS)
        room -= sum(each.cost for each in settled.advances)


@dataclass(frozen=True, slots=True)
class NextDue:
    """Seconds until schedules and retries are due; None: there are none."""

    seconds: float | None  # negative if overdue
    ahead_seconds: float | None  # without what is due already
    retry_seconds: float  # of retries alone; infinite if there are none


def read_next_due() -> NextDue:
    return sql.fetch("read_next_due", {}, NextDue)[0]


def _fire_bisecting_failures(batch: _Batch, held: HeldSchedules) -> FireResult:
    """Fire a batch; bisect it if it fails, to leave out only the schedules at fault."""
    parts, result = deque([batch]), FireResult()
    failed: list[tuple[UUID, Exception]] = []
    deadline: float | None = None
    while parts:
        part = parts.popleft()
        try:
            result += _fire_batch(part, held)
        except _BatchFailed as failure:
            if has_sqlstate(failure.error, _SERVER_SQLSTATES):
                raise failure.error from None
            deadline = deadline or time.monotonic() + limits.FIRE_BISECT_SECONDS
            if len(failure.ids) == 1:
                failed.append((failure.ids[0], failure.error))
            elif time.monotonic() < deadline:
                parts += replace(part, only=failure.ids).split()
            else:
                # Out of time: the search continues among held schedules, where it delays no others.
                held.hold(failure.ids)
                held.shrink_batches(len(failure.ids))
    for schedule_id, error in failed:
        result += _quarantine_or_hold(schedule_id, error, held, others_fired=result.schedules > 0)
    if failed and not result.schedules and not all(has_sqlstate(error, CONTENTION_SQLSTATES) for _, error in failed):
        raise failed[0][1]
    return result


def _quarantine_or_hold(schedule_id: UUID, error: Exception, held: HeldSchedules, *, others_fired: bool) -> FireResult:
    """Hold a failing schedule; quarantine it if its values are the cause and others fire."""
    if others_fired and (has_sqlstate(error, _DATA_SQLSTATES) or not isinstance(error, DatabaseError)):
        logger.error("Quarantined schedule %s: firing it fails", schedule_id, exc_info=error)
        with transaction.atomic(), _with_fire_timeouts():
            if _lock_due(_Batch(1, only=[schedule_id]), ()):
                _write_advances([quarantine(schedule_id, error)])
        return FireResult(quarantined=1)
    logger.warning("Holding schedule %s for a while: firing it fails: %s", schedule_id, error)
    held.hold([schedule_id], failed=not has_sqlstate(error, CONTENTION_SQLSTATES))
    return FireResult(postponed=1)


def _with_fire_timeouts() -> AbstractContextManager[bool]:
    """Wait only briefly for locks; no durable commit, since lost instants are still due."""
    return with_timeouts(
        statement_seconds=limits.FIRE_STATEMENT_TIMEOUT_SECONDS,
        lock_seconds=limits.FIRE_LOCK_TIMEOUT_SECONDS,
        durable=False,
    )


def _fire_batch(batch: _Batch, held: HeldSchedules) -> FireResult:
    taken: list[UUID] = []
    result, free = FireResult(), list[DueSchedule]()
    try:
        with transaction.atomic(), _with_fire_timeouts():
            due = _lock_due(batch, () if batch.only else held.ids())
            taken = [schedule.id for schedule in due]
            if due:
                in_force = _lock_free_jobs(due)
                free = [schedule for schedule in due if schedule.job_id in in_force]
            if free:
                shared = batch.lane is Lane.CATCH_UP
                settled = _fire_locked(
                    free,
                    in_force,
                    limits.FIRE_BATCH_INSTANTS,
                    shared=shared,
                    patient=False,
                    announce=batch.announce,
                )
                result, free = settled.result, [s for s in free if s.job_id not in settled.busy]
    except Exception as error:
        if not taken:
            raise
        raise _BatchFailed(taken, error) from None
    postponed = set(taken) - {schedule.id for schedule in free}
    if batch.only:
        held.release(set(batch.only) - postponed)
    held.hold(postponed)
    full = len(taken) == batch.limit and (bool(free) or not held.is_full)
    return replace(result, postponed=len(postponed), more=result.more or (full and not batch.only))


def _lock_due(batch: _Batch, held: Sequence[UUID]) -> list[DueSchedule]:
    min_late_seconds, max_late_seconds = batch.lane.value
    wanted = {
        "min_late_seconds": min_late_seconds,
        "max_late_seconds": max_late_seconds,
        "held": list(held),
        "only": None if batch.only is None else list(batch.only),
        "limit": batch.limit,
    }
    return sql.fetch("lock_due_schedules", wanted, DueSchedule)


def _lock_free_jobs(due: Sequence[DueSchedule]) -> _CurrentVersions:
    """Return the unlocked jobs; lock those with a limit, which two beats could exceed."""
    in_force = _read_current_versions({schedule.job_id for schedule in due})
    limited = {s.job_id for s in due if s.job_id in in_force and in_force[s.job_id].policy(s.kind).needs_lock}
    busy = limited - overlaps.try_lock_jobs(limited)
    return {job_id: job for job_id, job in in_force.items() if job_id not in busy}


def _read_current_versions(job_ids: Iterable[UUID]) -> _CurrentVersions:
    return {
        row.job_id: row for row in sql.fetch("read_current_versions", {"job_ids": sorted(job_ids)}, _CurrentVersion)
    }


@dataclass(frozen=True, slots=True)
class _Settled:
    result: FireResult
    advances: Sequence[Advance]
    busy: Collection[UUID]  # jobs left out, because executions that they would cancel are locked


def _fire_locked(
    due: Sequence[DueSchedule],
    in_force: _CurrentVersions,
    room: int,
    *,
    shared: bool = False,
    patient: bool = True,
    announce: Announce = due_window.announce_fired,
) -> _Settled:
    """Fire locked schedules up to a number of instants (`room`); the other schedules stay due.

    `shared`: divide the number evenly, or the schedules with the longest backlogs would use all of it.
    `patient`: wait for locked executions that must be cancelled, instead of leaving their jobs out.
    """
    advances: list[Advance] = []
    for schedule in due:
        if room <= 0:
            break
        version_id = in_force[schedule.job_id].version_id
        share = max(room // (len(due) - len(advances)), 1) if shared else room
        advances.append(advance(schedule, version_id, min(limits.FIRE_BATCH_INSTANTS_PER_SCHEDULE, share)))
        room -= advances[-1].cost
    all_fired, due = len(advances) == len(due), due[: len(advances)]
    decided = overlaps.apply_overlaps(
        [execution for each in advances for execution in each.executions],
        {d.id: in_force[d.job_id].policy(d.kind) for d in due},
    )
    busy: Collection[UUID] = ()
    if decided.cancel and not patient and (busy := overlaps.lock_cancelled(decided)):
        advances = [each for each, d in zip(advances, due, strict=True) if d.job_id not in busy]
        due = [d for d in due if d.job_id not in busy]
        decided = decided.without(busy)
    completion.on_finished(transitions.cancel(list(decided.cancel), by="a newer firing") if decided.cancel else [])
    waiting = dependents.create_fired_executions(
        decided.executions, {d.job_id for d in due if in_force[d.job_id].has_upstreams}
    )
    DroppedRange.objects.bulk_create(a.dropped for a in advances if a.dropped)
    _write_advances(advances)
    dependents.resolve_just_fired(waiting)
    _announce_after_commit(announce, due, advances)
    states = [execution.state for execution in decided.executions]
    result = FireResult(
        schedules=len(due),
        fired=states.count(State.READY),
        missed=states.count(State.MISSED) + sum(a.dropped.count for a in advances if a.dropped),
        skipped=states.count(State.SKIPPED),
        quarantined=sum(bool(a.error) for a in advances),
        more=not all_fired or any(a.next_fire_at and a.next_fire_at <= due[0].now for a in advances),
    )
    return _Settled(result, advances, busy)


def _write_advances(advances: Sequence[Advance]) -> None:
    sql.execute("advance_schedules", {"rows": json.dumps([a.as_row() for a in advances])})


def _announce_after_commit(announce: Announce, due: Sequence[DueSchedule], advances: Sequence[Advance]) -> None:
    found = [due_window.DueEntry(d.id, add_jitter(d.id, d.next_instant, d.jitter_seconds)) for d in due]
    upcoming = [due_window.DueEntry(a.schedule_id, a.next_fire_at) for a in advances if a.next_fire_at]
    transaction.on_commit(lambda: announce(found, upcoming))
