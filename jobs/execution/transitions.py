"""The only writer of execution states.

A move of one execution compares state, attempt, worker and incarnation before it sets; a move of many is one statement
over rows that it locked. No other SQL writes the `state` column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar
from uuid import UUID

from django.db import transaction

from jobs.db import sql, wakeups
from jobs.domain import limits
from jobs.domain.errors import StaleAttempt
from jobs.domain.messages import Publication
from jobs.domain.states import STARTED, TERMINAL, Move, Reason, State, source_states, target_state
from jobs.domain.worker_protocol import AttemptFence, ClaimedRun, MovedExecution, RunStart
from jobs.execution import parking
from jobs.models.execution import Trigger
from jobs.models.ids import new_id

Moved = TypeVar("Moved")


@dataclass(frozen=True, slots=True)
class NewExecution:
    job_id: UUID
    trigger: Trigger
    state: State = State.READY
    reason: Reason | None = None  # why a missed or skipped execution never runs
    pinned_worker_id: UUID | None = None  # None: any worker
    schedule_id: UUID | None = None
    scheduled_for: datetime | None = None  # None: now
    run_id: UUID | None = None  # None: it starts its own run
    retry_of: UUID | None = None
    version_id: UUID | None = None  # None: the version that is current when it is inserted


@dataclass(frozen=True, slots=True)
class Placement:
    execution_id: UUID
    worker_id: UUID
    incarnation: int


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """How an attempt ended and where that moves its execution."""

    move: Move
    reason: Reason
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    result: object = None
    retry_seconds: float = 0
    counts_as_try: bool = True
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    peak_disk_bytes: int | None = None
    log_truncated: bool = False


@dataclass(frozen=True, slots=True)
class Success:
    """A run that ended well; its start, unless it is stored already."""

    fence: AttemptFence
    outcome: AttemptOutcome
    start: RunStart | None


@dataclass(frozen=True, slots=True)
class _Cancelled(MovedExecution):
    held_by: UUID | None  # the worker that runs it and must stop it


def create_executions(new: Sequence[NewExecution]) -> list[UUID]:
    """Insert executions, leaving existing ones as they are; return the ids assigned."""
    ids = [new_id() for _ in new]
    if new:
        rows = [_to_row(n, execution_id) for n, execution_id in zip(new, ids, strict=True)]
        sql.execute("create_executions", {"rows": json.dumps(rows)})
    return ids


def _to_row(new: NewExecution, execution_id: UUID) -> dict[str, str]:
    """Leave out nulls: a row is written here and parsed by Postgres for every firing."""
    row = {
        "id": execution_id,
        "job_id": new.job_id,
        "trigger": new.trigger,
        "state": new.state,
        "reason": new.reason,
        "pinned_worker_id": new.pinned_worker_id,
        "schedule_id": new.schedule_id,
        "scheduled_for": new.scheduled_for,
        "run_id": new.run_id,
        "retry_of": new.retry_of,
        "version_id": new.version_id,
    }
    return {name: str(value) for name, value in row.items() if value is not None}


def unblock(execution_ids: Sequence[UUID]) -> list[MovedExecution]:
    return _move_blocked(Move.UNBLOCK, execution_ids)


def skip(execution_ids: Sequence[UUID]) -> list[MovedExecution]:
    return _move_blocked(Move.SKIP, execution_ids)


def _move_blocked(move: Move, execution_ids: Sequence[UUID]) -> list[MovedExecution]:
    if not execution_ids:
        return []
    return sql.fetch("unblock_executions", {"ids": list(execution_ids)} | _state_parameters(move), MovedExecution)


def place(assignments: Sequence[Placement]) -> list[Publication]:
    """Return the messages to send after the commit."""
    if not assignments:
        return []
    rows = [
        {"execution_id": str(a.execution_id), "worker_id": str(a.worker_id), "incarnation": a.incarnation}
        for a in assignments
    ]
    return sql.fetch("place_executions", {"rows": json.dumps(rows)} | _state_parameters(Move.PLACE), Publication)


def wake_backed_off(limit: int = limits.PLACE_BATCH_EXECUTIONS) -> int:
    return sql.execute("wake_backed_off", {"limit": limit})


def find_overdue(limit: int, *, excluding: Sequence[UUID] = ()) -> list[UUID]:
    """Lock and return executions that no worker claimed before their deadline."""
    return sql.fetch_ids("find_overdue", {"limit": limit, "excluding": list(excluding)})


def expire_overdue(execution_ids: Sequence[UUID]) -> list[MovedExecution]:
    """Time out those of these executions that are overdue."""
    expired = sql.fetch("expire_overdue", {"ids": list(execution_ids)} | _state_parameters(Move.EXPIRE), MovedExecution)
    parking.unpark({row.job_id for row in expired})
    return expired


def return_unclaimed(limit: int = limits.PLACE_BATCH_EXECUTIONS, *, include_recent: bool = False) -> int:
    """Return executions placed long ago and never claimed; `include_recent`: whenever they were placed."""
    seconds = 0 if include_recent else limits.UNCLAIMED_TIMEOUT_SECONDS
    return _return_to_ready("return_unclaimed", {"limit": limit, "unclaimed_seconds": seconds})


def release_queued(limit: int = limits.PLACE_BATCH_EXECUTIONS) -> int:
    """Return executions that wait on draining workers, which claim nothing new."""
    # A claimed one is for its worker to finish or release.
    return _return_to_ready(
        "release_from_draining_workers",
        {"limit": limit} | _state_parameters(Move.RELEASE) | {"sources": [State.QUEUED.value]},
    )


def _return_to_ready(statement: str, parameters: Mapping[str, object]) -> int:
    ids = sql.fetch_ids(statement, parameters)
    move_to_current_queue(ids)
    return len(ids)


def move_to_current_queue(execution_ids: Sequence[UUID]) -> int:
    """Move those that wait to the current queue of their job; the caller's transaction has locked them.

    A running execution still counts in the queue where it was placed, and moves when it is placed again.
    """
    return sql.execute("move_to_current_queue", {"ids": list(execution_ids)}) if execution_ids else 0


def claim(fence: AttemptFence) -> ClaimedRun:
    """Claim in a transaction of its own, as `start` does; wait for a transaction that holds the execution."""
    return _move_one(fence, lambda: claim_unlocked([fence]))


def claim_unlocked(fences: Sequence[AttemptFence]) -> list[ClaimedRun]:
    """Claim what the fence admits and no other transaction holds."""
    parameters = {
        "execution_ids": [fence.execution_id for fence in fences],
        "attempts": [fence.attempt for fence in fences],
        "worker_ids": [fence.worker_id for fence in fences],
        "incarnations": [fence.incarnation for fence in fences],
        "attempt_ids": [new_id() for _ in fences],
    }
    return sql.fetch("claim_executions", parameters | _state_parameters(Move.CLAIM), ClaimedRun)


def start(fence: AttemptFence, receipt: Mapping[str, object], *, seconds_ago: float = 0.0) -> None:
    _move_one(fence, lambda: start_unlocked({fence: RunStart(receipt, seconds_ago)}), has_attempt=True)


def start_unlocked(starts: Mapping[AttemptFence, RunStart]) -> list[UUID]:
    """Store starts as `claim_unlocked` stores claims; return the executions."""
    rows = [
        fence.as_json() | {"receipt": dict(start.receipt), "seconds_ago": start.seconds_ago}
        for fence, start in starts.items()
    ]
    return sql.fetch_ids("start_attempts", {"rows": json.dumps(rows)} | _state_parameters(Move.START))


def succeed_unlocked(successes: Sequence[Success]) -> list[MovedExecution]:
    """Finish successes without outputs, as most are, unless a cancel was requested or follow-ups are needed.

    Like `claim_unlocked`, it leaves out what the fence rejects or another transaction holds.
    """
    parameters = {"rows": json.dumps([_success_row(each) for each in successes])} | _state_parameters(Move.SUCCEED)
    return sql.fetch("succeed_attempts", parameters | {"starting": source_states(Move.START)}, MovedExecution)


def _success_row(success: Success) -> dict[str, object]:
    outcome, start = success.outcome, success.start
    return success.fence.as_json() | {
        "exit_code": outcome.exit_code,
        "result": outcome.result,
        "error": outcome.error,
        "cpu_seconds": outcome.cpu_seconds,
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "peak_disk_bytes": outcome.peak_disk_bytes,
        "log_truncated": outcome.log_truncated,
        "receipt": None if start is None else dict(start.receipt),
        "started_seconds_ago": None if start is None else start.seconds_ago,
    }


def _move_one(fence: AttemptFence, move: Callable[[], list[Moved]], *, has_attempt: bool = False) -> Moved:
    """Move one execution; raise StaleAttempt if the fence rejects it."""
    moved = move()
    if not moved:
        # Another transaction may hold it, for which a statement that moves many does not wait.
        with transaction.atomic():
            held = sql.fetch_ids("lock_execution", fence.parameters())
            if held and has_attempt:
                sql.fetch_ids("lock_attempt", fence.parameters())
            moved = move()
    if not moved:
        raise StaleAttempt
    return moved[0]


def finish(fence: AttemptFence, outcome: AttemptOutcome) -> MovedExecution:
    """Finish an attempt; its execution becomes terminal, `ready` or `backing_off`."""
    rows = _finish(fence, outcome)
    if not rows:
        raise StaleAttempt
    if not rows[0].ended:
        move_to_current_queue([fence.execution_id])
    return rows[0]


def _finish(fence: AttemptFence, outcome: AttemptOutcome) -> list[MovedExecution]:
    becomes = target_state(outcome.move)
    terminal = becomes in TERMINAL
    return sql.fetch(
        "finish_attempt",
        fence.parameters()
        | _state_parameters(outcome.move)
        | {
            # A queued execution has no attempt yet: if it were claimed while this waits, that attempt would stay open.
            "sources": [state for state in source_states(outcome.move) if state in STARTED],
            "terminal": terminal,
            "reason": outcome.reason.value if terminal else None,
            "attempt_reason": outcome.reason.value,
            "exit_code": outcome.exit_code,
            "signal": outcome.signal,
            "error": outcome.error,
            "result": None if outcome.result is None else json.dumps(outcome.result),
            "tries": int(outcome.counts_as_try),
            "retry_seconds": outcome.retry_seconds,
            "cpu_seconds": outcome.cpu_seconds,
            "peak_memory_bytes": outcome.peak_memory_bytes,
            "peak_disk_bytes": outcome.peak_disk_bytes,
            "log_truncated": outcome.log_truncated,
        },
        MovedExecution,
    )


def lock_executions_to_lose(
    workers: Mapping[UUID, int | None],
    *,
    listed: Sequence[UUID] | None = None,
    limit: int = limits.FINISH_BATCH_EXECUTIONS,
    only: Sequence[UUID] | None = None,
    excluding: Sequence[UUID] = (),
) -> list[UUID]:
    """Lock and return the executions that `lose_executions` would reclaim with these arguments."""
    wanted = {
        "worker_ids": list(workers),
        "keep_incarnations": list(workers.values()),
        "listed": None if listed is None else list(listed),
        "unlisted_seconds": limits.UNREPORTED_GRACE_SECONDS,
        "only": None if only is None else list(only),
        "excluding": list(excluding),
        "limit": limit,
    }
    return sql.fetch_ids("lock_executions_to_lose", wanted)


def lose_executions(
    workers: Mapping[UUID, int | None],
    *,
    reason: Reason = Reason.LOST,
    listed: Sequence[UUID] | None = None,
    limit: int = limits.FINISH_BATCH_EXECUTIONS,
    only: Sequence[UUID] | None = None,
    excluding: Sequence[UUID] = (),
) -> list[MovedExecution]:
    """Reclaim what workers hold, except for the incarnation given for each and later ones (None: reclaim everything).

    Rows that another transaction holds are left to the next pass of the reaper. `reason`: `LOST`, or `RELEASED` for
    workers that finished their runs and leave. `listed`: what the given incarnation runs; reclaim the rest of it.
    """
    with transaction.atomic(savepoint=False):
        ids = lock_executions_to_lose(workers, listed=listed, limit=limit, only=only, excluding=excluding)
        if not ids:
            return []
        fates: dict[str, object] = {"max_times_lost": limits.MAX_LOST_ATTEMPTS, "reason": reason.value}
        moved = sql.fetch("lose_executions", {"ids": ids} | fates, MovedExecution)
        move_to_current_queue([row.execution_id for row in moved if not row.ended])
    return moved


def cancel(execution_ids: Iterable[UUID], *, by: str) -> list[MovedExecution]:
    """Cancel what waits; mark what runs and wake its worker. Finished or already cancelled executions are left out."""
    parameters = {"ids": list(execution_ids), "by": by} | _state_parameters(Move.CANCEL)
    cancelled = sql.fetch("request_cancel", parameters, _Cancelled)
    parking.unpark({row.job_id for row in cancelled if row.ended})
    for worker_id in {row.held_by for row in cancelled if row.held_by}:
        transaction.on_commit(partial(wakeups.wake_worker, worker_id))
    return list(cancelled)


def _state_parameters(move: Move) -> dict[str, object]:
    return {"sources": source_states(move), "target": target_state(move)}
