"""Turns due instants into executions.

Any number of beats fire at once: each takes due schedules that nobody else holds, inserts their executions and advances
them in one transaction. An instant is settled exactly once because the row that names it is locked while it is settled,
and because an instant of a schedule can have only one execution.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction

from jobs import conf, sql
from jobs.models.execution import Trigger
from jobs.recurrence import CatchUp, Kind, Recurrence, due_instants, jittered, settle
from jobs.services import transitions
from jobs.services.database import bounded
from jobs.services.transitions import NewExecution
from jobs.states import State

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FireResult:
    schedules: int = 0
    fired: int = 0
    missed: int = 0
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
    next_instant: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class _Advance:
    """A schedule's instants, settled, and where it stands afterwards."""

    schedule_id: UUID
    executions: tuple[NewExecution, ...] = ()
    next_instant: datetime | None = None
    next_fire_at: datetime | None = None
    error: str = ""


def fire_due_schedules(*, limit: int = conf.FIRE_BATCH_SCHEDULES) -> FireResult:
    """One batch, one transaction."""
    with transaction.atomic(), bounded(statement_seconds=10):
        due = sql.fetch("take_due_schedules", {"limit": limit}, _Due)
        if not due:
            return FireResult()
        advances = [_advance(schedule) for schedule in due]
        executions = [execution for advance in advances for execution in advance.executions]
        transitions.create_executions(executions)
        sql.execute(
            "advance_schedules",
            {
                "ids": [a.schedule_id for a in advances],
                "next_instants": [a.next_instant for a in advances],
                "next_fire_ats": [a.next_fire_at for a in advances],
                "errors": [a.error for a in advances],
            },
        )
    fired = sum(execution.state is State.READY for execution in executions)
    return FireResult(
        schedules=len(due),
        fired=fired,
        missed=len(executions) - fired,
        quarantined=sum(bool(a.error) for a in advances),
        more=len(due) == limit or any(a.next_fire_at and a.next_fire_at <= due[0].now for a in advances),
    )


def seconds_until_next_due() -> float | None:
    """How long beat may sleep for the sake of schedules and retries; None: nothing is to come."""

    @dataclass(frozen=True)
    class Wait:
        seconds: float | None

    return sql.fetch("next_due", {}, Wait)[0].seconds


def _advance(due: _Due) -> _Advance:
    try:
        return _settle(due)
    except Exception as error:
        # A recurrence that cannot be computed must not take the rest of its batch with it.
        logger.exception("Schedule %s is quarantined: its recurrence cannot be computed", due.id)
        return _Advance(due.id, error=f"{type(error).__name__}: {error}"[:1000])


def _settle(due: _Due) -> _Advance:
    recurrence = Recurrence(
        kind=Kind(due.kind),
        expression=due.expression,
        timezone=due.timezone,
        starts_at=due.starts_at,
        ends_at=due.ends_at,
    )
    instants, following = due_instants(recurrence, due.next_instant, due.now, conf.FIRE_BATCH_INSTANTS_EACH)
    # Jitter moves the moment of firing, never the instant: one whose moment has not come yet is left for later.
    instants, following = _whose_moment_came(due, instants, following)
    settled = settle(
        instants,
        now=due.now,
        more_due=following is not None and following <= due.now,
        policy=CatchUp(due.catch_up),
        window_seconds=due.catch_up_window_seconds,
        grace_seconds=conf.CATCH_UP_GRACE_SECONDS + due.jitter_seconds,
    )
    return _Advance(
        schedule_id=due.id,
        executions=tuple(
            NewExecution(
                due.job_id,
                Trigger.SCHEDULE,
                state=State.READY if s.fires else State.MISSED,
                schedule_id=due.id,
                scheduled_for=s.instant,
            )
            for s in settled
        ),
        next_instant=following,
        next_fire_at=following and jittered(due.id, following, due.jitter_seconds),
    )


def _whose_moment_came(
    due: _Due, instants: list[datetime], following: datetime | None
) -> tuple[list[datetime], datetime | None]:
    for index, instant in enumerate(instants):
        if jittered(due.id, instant, due.jitter_seconds) > due.now:
            return instants[:index], instant
    return instants, following
