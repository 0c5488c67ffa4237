"""Turns due instants into executions.

Any number of beats fire at once: each takes due schedules that nobody else holds, inserts their executions and advances
them in one transaction. An instant is settled exactly once because the row that names it is locked while it is settled,
and because an instant of a schedule can have only one execution.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from uuid import UUID

from django.db import transaction

from jobs import conf, due_window, sql
from jobs.models import DroppedRange, DropReason, Trigger
from jobs.recurrence import CatchUp, Kind, Recurrence, due_instants, jittered, rearmed, settle
from jobs.services import dependencies, endings, overlaps, transitions
from jobs.services.database import bounded
from jobs.services.transitions import NewExecution
from jobs.states import Reason, State

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FireResult:
    schedules: int = 0
    fired: int = 0
    missed: int = 0
    skipped: int = 0
    quarantined: int = 0
    more: bool = False  # a full batch: there may be more due right now


@dataclass(frozen=True, slots=True)
class _Due:
    id: UUID
    job_id: UUID
    kind: str
    expression: str
    timezone: str
    starts_at: datetime
    ends_at: datetime | None
    jitter_seconds: float
    catch_up: str
    catch_up_window_seconds: float | None
    excluded_dates: list[date] | None  # None: no need to read an empty list of every schedule
    max_count: int | None
    settled_count: int
    next_instant: datetime
    now: datetime
    overlap: str
    max_concurrency: int | None
    depends: bool  # on other jobs: what it fires waits for them
    holds_back: bool = True  # until the jittered moment has come


@dataclass(frozen=True, slots=True)
class _Advance:
    """A schedule's instants, settled, and where it stands afterwards."""

    schedule_id: UUID
    executions: tuple[NewExecution, ...] = ()
    dropped: DroppedRange | None = None
    settled: int = 0
    next_instant: datetime | None = None
    next_fire_at: datetime | None = None
    error: str = ""


def fire_due_schedules(*, limit: int = conf.FIRE_BATCH_SCHEDULES) -> FireResult:
    """One batch, one transaction; a crash that undoes it leaves its instants due."""
    with transaction.atomic(), bounded(statement_seconds=10, durable=False):
        due = sql.fetch("take_due_schedules", {"limit": limit}, _Due)
        if not due:
            return FireResult()
        result, more = _settle_batch(due)
    return FireResult(**result, more=more or len(due) == limit)


def settle_job(job_id: UUID, *, until: datetime, ending: Sequence[UUID] | None = None) -> None:
    """Settles every instant of a job up to `until`, in the caller's transaction, before what is in force changes.

    Exactly up to there: a later one belongs to what is in force afterwards. Jitter does not hold one back, except of
    the schedules that go on as they are: those that are not among `ending` (None: none goes on).
    """
    wanted = {"job_id": job_id, "until": until, "ending": ending if ending is None else list(ending)}
    while due := sql.fetch("take_job_schedules", wanted, _Due):
        _settle_batch([replace(s, holds_back=ending is not None and s.id not in ending) for s in due])


def seconds_until_next_due() -> float | None:
    """How long beat may sleep for the sake of schedules and retries; None: nothing is to come."""

    @dataclass(frozen=True)
    class Wait:
        seconds: float | None

    return sql.fetch("next_due", {}, Wait)[0].seconds


def _settle_batch(due: Sequence[_Due]) -> tuple[dict[str, int], bool]:
    advances = [_advance(schedule) for schedule in due]
    decided = overlaps.apply_overlaps(
        [execution for advance in advances for execution in advance.executions],
        {d.id: _overlap(d) for d in due},
    )
    endings.settle_endings(transitions.cancel(decided.cancel, by="a newer firing") if decided.cancel else [])
    waiting = dependencies.create_fired(decided.executions, {d.job_id for d in due if d.depends})
    DroppedRange.objects.bulk_create(a.dropped for a in advances if a.dropped)
    sql.execute(
        "advance_schedules",
        {"rows": json.dumps([_row(a) for a in advances])},
    )
    dependencies.judge_scheduled(waiting)
    _announce_after_commit(due, advances)
    states = [execution.state for execution in decided.executions]
    result = {
        "schedules": len(due),
        "fired": states.count(State.READY),
        "missed": states.count(State.MISSED) + sum(a.dropped.count for a in advances if a.dropped),
        "skipped": states.count(State.SKIPPED),
        "quarantined": sum(bool(a.error) for a in advances),
    }
    return result, any(a.next_fire_at and a.next_fire_at <= due[0].now for a in advances)


def _row(advance: _Advance) -> dict[str, object]:
    """As short as can be: what a row says is written here and read by Postgres once for every firing."""
    row: dict[str, object] = {"id": str(advance.schedule_id), "settled": advance.settled}
    if advance.next_instant:
        row["next_instant"] = advance.next_instant.isoformat()
    if advance.next_fire_at and advance.next_fire_at != advance.next_instant:
        row["next_fire_at"] = advance.next_fire_at.isoformat()
    if advance.error:
        row["error"] = advance.error
    return row


def _announce_after_commit(due: Sequence[_Due], advances: Sequence[_Advance]) -> None:
    found = [due_window.Due(d.id, jittered(d.id, d.next_instant, d.jitter_seconds)) for d in due]
    upcoming = [due_window.Due(a.schedule_id, a.next_fire_at) for a in advances if a.next_fire_at]
    transaction.on_commit(lambda: due_window.announce_settled(found, upcoming))


def _overlap(due: _Due) -> overlaps.Policy:
    """A fixed delay waits for its own last run already; skipped, it would never be armed again."""
    return overlaps.Policy(None if due.kind == Kind.DELAY else due.overlap, due.max_concurrency)


def _advance(due: _Due) -> _Advance:
    try:
        return _settle(due)
    except Exception as error:
        # A recurrence that cannot be computed must not take the rest of its batch with it.
        logger.exception("Schedule %s is quarantined: its recurrence cannot be computed", due.id)
        return _Advance(due.id, error=f"{type(error).__name__}: {error}"[:1000])


def _settle(due: _Due) -> _Advance:
    recurrence = Recurrence.of(due, key=due.id)
    limit = conf.FIRE_BATCH_INSTANTS_EACH
    if due.max_count is not None:
        limit = min(limit, due.max_count - due.settled_count)
    instants, following = due_instants(recurrence, due.next_instant, due.now, limit)
    # Jitter moves the moment of firing, never the instant: one whose moment has not come yet is left for later.
    instants, following = _whose_moment_came(due, instants, following)
    used_up = due.max_count is not None and due.settled_count + len(instants) >= due.max_count
    if used_up:
        following = None
    settled = settle(
        instants,
        now=due.now,
        more_due=following is not None and following <= due.now,
        policy=CatchUp(due.catch_up),
        window_seconds=due.catch_up_window_seconds,
        grace_seconds=conf.CATCH_UP_GRACE_SECONDS + due.jitter_seconds,
    )
    late = [s.instant for s in settled if not s.fires]
    dropped = _dropped(due, late) if len(late) > conf.MAX_MISSED_ROWS else None
    if recurrence.kind is Kind.DELAY and late and not used_up:
        # Nothing will end, so nothing would arm it again.
        following = rearmed(recurrence, due.now)
    return _Advance(
        schedule_id=due.id,
        executions=tuple(_execution(due, s.instant, fires=s.fires) for s in settled if s.fires or not dropped),
        dropped=dropped,
        settled=len(instants),
        next_instant=following,
        next_fire_at=following and jittered(due.id, following, due.jitter_seconds),
    )


def _execution(due: _Due, instant: datetime, *, fires: bool) -> NewExecution:
    return NewExecution(
        due.job_id,
        Trigger.SCHEDULE,
        state=State.READY if fires else State.MISSED,
        reason=None if fires else Reason.CATCH_UP,
        schedule_id=due.id,
        scheduled_for=instant,
    )


def _dropped(due: _Due, late: Sequence[datetime]) -> DroppedRange:
    return DroppedRange(
        schedule_id=due.id,
        first=late[0],
        last=late[-1],
        count=len(late),
        reason=DropReason.CATCH_UP,
        created_at=due.now,
    )


def _whose_moment_came(
    due: _Due, instants: list[datetime], following: datetime | None
) -> tuple[list[datetime], datetime | None]:
    if not due.jitter_seconds or not due.holds_back:
        return instants, following
    for index, instant in enumerate(instants):
        if jittered(due.id, instant, due.jitter_seconds) > due.now:
            return instants[:index], instant
    return instants, following
