"""Fixed delays: the next instant is set in the transaction that finishes the last execution.

`rearm_delays` neither waits for a schedule that another transaction holds nor fails because of one that cannot be
computed, which it quarantines. An execution may also finish without arming its schedule: while another transaction held
the schedule, or before an edit made it a fixed delay. `arm_idle_delays`, which the reaping beat calls each second, arms
the schedules that no execution will arm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from jobs.db import due_window, sql, wakeups
from jobs.db.clock import database_now
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.recurrence import Kind, Recurrence, add_jitter, next_delay_instant
from jobs.domain.recurrence.bounds import RESOLUTION
from jobs.domain.worker_protocol import MovedExecution
from jobs.models import JobState, Schedule

logger = logging.getLogger(__name__)

_FIRST_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class _FixedDelay:
    schedule_id: UUID
    kind: str
    expression: str
    timezone: str
    starts_at: datetime
    ends_at: datetime | None
    excluded_dates: list[date]
    jitter_seconds: float
    max_count: int | None
    settled_count: int

    @property
    def is_exhausted(self) -> bool:
        return self.max_count is not None and self.settled_count >= self.max_count

    @property
    def recurrence(self) -> Recurrence:
        return Recurrence.of(self, key=self.schedule_id)


@dataclass(frozen=True, slots=True)
class _EndedDelay(_FixedDelay):
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class IdleDelay(_FixedDelay):
    """A fixed delay without a next instant."""

    ended_at: datetime | None  # of its last execution; None: it has none
    since: datetime | None  # the earliest time at which it lost its next instant
    is_idle: bool  # its job is active and has no unfinished execution of this schedule

    def due(self, now: datetime) -> datetime | None:
        """Return when to fire next; None: never again, or an execution will arm it."""
        if not self.is_idle or self.is_exhausted:
            return None
        if self.ended_at is not None:
            due = next_delay_instant(self.recurrence, self.ended_at)
            if due is None or due > now:
                return due
        # At once: the instant has passed, or the schedule never fired.
        again = max(now, self.starts_at)
        return replace(self.recurrence, starts_at=again).next_after(again - RESOLUTION)


@dataclass(frozen=True, slots=True)
class ArmResult:
    examined: int = 0
    armed: int = 0
    after: UUID | None = None  # where the next step continues; None: from the start


def rearm_delays(ended: Sequence[MovedExecution]) -> None:
    """Set the next instant of the fixed delays whose executions have finished."""
    if not ended:
        return
    armed: list[tuple[UUID, datetime]] = []
    for delay in sql.fetch("rearm_delays", {"ids": [m.execution_id for m in ended]}, _EndedDelay):
        if not delay.is_exhausted:
            armed += _arm(delay, partial(_next_instant_after, delay))
    _announce_after_commit(armed)


def _next_instant_after(delay: _EndedDelay) -> datetime | None:
    return next_delay_instant(delay.recurrence, delay.ended_at)


def arm_idle_delays(*, limit: int = limits.SWEEP_BATCH_EXECUTIONS, after: UUID | None = None) -> ArmResult:
    """Arm one page of schedules that nothing else will arm; any number of beats may do so at once."""
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        page = read_idle_delays(limit=limit, after=after)
        # Without locks first: usually there is nothing to do, and locking writes to every row.
        wanted = [delay.schedule_id for delay in _filter_maybe_due(page)]
        armed = [each for delay, now in _lock_idle(wanted) for each in _arm(delay, partial(delay.due, now))]
        _announce_after_commit(armed)
    for schedule_id, _ in armed:
        logger.warning("Armed idle fixed delay %s; no execution would have armed it", schedule_id)
    return ArmResult(len(page), len(armed), page[-1].schedule_id if len(page) == limit else None)


def read_idle_delays(
    *, only: Collection[UUID] | None = None, limit: int = limits.SWEEP_BATCH_EXECUTIONS, after: UUID | None = None
) -> list[IdleDelay]:
    wanted = {"only": None if only is None else list(only), "limit": limit, "after": after or _FIRST_ID}
    return sql.fetch("read_idle_delays", wanted, IdleDelay)


def _lock_idle(ids: Sequence[UUID]) -> list[tuple[IdleDelay, datetime]]:
    """Lock the schedules that are still idle, so that no other transaction arms, pauses or edits them."""
    if not ids:
        return []
    rows = Schedule.objects.select_for_update(no_key=True, skip_locked=True, of=("self",)).filter(
        id__in=ids, kind=Kind.DELAY, next_instant__isnull=True
    )
    held = list(rows.order_by("id").values_list("id", flat=True))
    now = database_now()
    # Read again under the locks: an execution may have finished, or the job may have been paused.
    return [(delay, now) for delay in read_idle_delays(only=held, limit=len(held)) if delay.is_idle] if held else []


def _filter_maybe_due(page: Sequence[IdleDelay]) -> list[IdleDelay]:
    """Return the schedules to lock, including those that cannot be computed: `_arm` quarantines them."""
    idle = [delay for delay in page if delay.is_idle and not delay.is_exhausted]
    if not idle:
        return []
    now, wanted = database_now(), list[IdleDelay]()
    for delay in idle:
        with suppress(Exception):
            if delay.due(now) is None:
                continue
        wanted.append(delay)
    return wanted


def _arm(delay: _FixedDelay, compute_due: Callable[[], datetime | None]) -> list[tuple[UUID, datetime]]:
    """Set the next instant under the schedule's lock; empty if it never fires again, fails or its job is paused."""
    try:
        due = compute_due()
        fire_at = due and add_jitter(delay.schedule_id, due, delay.jitter_seconds)
    except Exception as error:
        logger.exception("Quarantined schedule %s: its delay cannot be computed", delay.schedule_id)
        Schedule.objects.filter(id=delay.schedule_id).update(
            quarantined_at=Now(), quarantine_error=f"{type(error).__name__}: {error}"[:1000]
        )
        return []
    if due is None or fire_at is None:
        return []
    # Checked under the schedule's lock, which pausing the job takes as well.
    active = Schedule.objects.filter(id=delay.schedule_id, job__state=JobState.ACTIVE)
    return [(delay.schedule_id, fire_at)] if active.update(next_instant=due, next_fire_at=fire_at) else []


def _announce_after_commit(armed: Sequence[tuple[UUID, datetime]]) -> None:
    if armed:
        transaction.on_commit(lambda: due_window.announce_due(armed))
        # It may be due before beat wakes up on its own.
        transaction.on_commit(wakeups.wake_beat)
