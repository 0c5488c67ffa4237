"""The only writer of execution states.

Every move of a single execution compares state, attempt, worker and incarnation before it sets; every move of many
is one statement over rows that it locked. Nobody else's SQL names the `state` column as a target.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from django.db import transaction

from jobs import conf, sql, wakeups
from jobs.errors import StaleAttempt
from jobs.messages import Publication
from jobs.models.execution import Trigger
from jobs.models.ids import new_id
from jobs.protocol import Claimed, Hold, Moved
from jobs.states import STARTED, TERMINAL, Move, Reason, State, sources, target

# The most that Postgres may spend on a move that is a transaction of its own.
SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class NewExecution:
    job_id: UUID
    trigger: Trigger
    state: State = State.READY
    reason: Reason | None = None  # why it never runs, of one that is missed or skipped
    pinned_worker_id: UUID | None = None  # None: it may run anywhere
    schedule_id: UUID | None = None
    scheduled_for: datetime | None = None  # None: now
    run_id: UUID | None = None  # None: it starts a run of its own
    retry_of: UUID | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    execution_id: UUID
    worker_id: UUID
    incarnation: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended and what that makes of its execution."""

    move: Move
    reason: Reason
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    result: object = None
    retry_seconds: float = 0
    burns_try: bool = True
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    peak_disk_bytes: int | None = None
    log_truncated: bool = False


@dataclass(frozen=True, slots=True)
class _Row:
    id: UUID


@dataclass(frozen=True, slots=True)
class _Cancelled(Moved):
    held_by: UUID | None  # the worker that runs it, and has to stop it


def create_executions(new: Sequence[NewExecution]) -> list[UUID]:
    """Inserts executions in the version now in force; what exists already is left as it is. Returns the ids it gave."""
    ids = [new_id() for _ in new]
    if new:
        rows = [_row(n, own) for n, own in zip(new, ids, strict=True)]
        sql.execute("create_executions", {"rows": json.dumps(rows)})
    return ids


def _row(new: NewExecution, own: UUID) -> dict[str, object]:
    """Without what is null: it is written here and read by Postgres once for every firing."""
    row: dict[str, object] = {"id": str(own), "job_id": str(new.job_id), "trigger": new.trigger, "state": new.state}
    if new.pinned_worker_id:
        row["pinned_worker_id"] = str(new.pinned_worker_id)
    if new.schedule_id:
        row["schedule_id"] = str(new.schedule_id)
    if new.scheduled_for:
        row["scheduled_for"] = new.scheduled_for.isoformat()
    if new.run_id:
        row["run_id"] = str(new.run_id)
    if new.reason:
        row["reason"] = new.reason
    if new.retry_of:
        row["retry_of"] = str(new.retry_of)
    return row


def unblock(execution_ids: Sequence[UUID]) -> list[Moved]:
    return _move_blocked(Move.UNBLOCK, execution_ids)


def skip(execution_ids: Sequence[UUID]) -> list[Moved]:
    return _move_blocked(Move.SKIP, execution_ids)


def _move_blocked(move: Move, execution_ids: Sequence[UUID]) -> list[Moved]:
    if not execution_ids:
        return []
    return sql.fetch("unblock_executions", {"ids": list(execution_ids)} | _ends(move), Moved)


def place(assignments: Sequence[Assignment]) -> list[Publication]:
    """Returns what the caller is to send once this is committed."""
    if not assignments:
        return []
    rows = [
        {"execution_id": str(a.execution_id), "worker_id": str(a.worker_id), "incarnation": a.incarnation}
        for a in assignments
    ]
    return sql.fetch("place_executions", {"rows": json.dumps(rows)} | _ends(Move.PLACE), Publication)


def wake_backed_off(limit: int = conf.PLACE_BATCH_EXECUTIONS) -> int:
    return sql.execute("wake_backed_off", {"limit": limit})


def expire_overdue(limit: int = conf.PLACE_BATCH_EXECUTIONS) -> list[Moved]:
    """Ends what no worker has taken before its deadline."""
    return sql.fetch("expire_overdue", {"limit": limit} | _ends(Move.EXPIRE), Moved)


def return_unclaimed(limit: int = conf.PLACE_BATCH_EXECUTIONS) -> int:
    return _give_back("return_unclaimed", {"limit": limit, "unclaimed_seconds": conf.UNCLAIMED_SECONDS})


def release_queued(limit: int = conf.PLACE_BATCH_EXECUTIONS) -> int:
    """Takes back what waits on workers that drain: they will not take it."""
    # What was claimed is the worker's to finish or to release.
    return _give_back("release_queued", {"limit": limit} | _ends(Move.RELEASE) | {"sources": [State.QUEUED.value]})


def _give_back(statement: str, parameters: Mapping[str, object]) -> int:
    ids = [row.id for row in sql.fetch(statement, parameters, _Row)]
    follow_queue(ids)
    return len(ids)


def follow_queue(execution_ids: Sequence[UUID]) -> int:
    """Has those of them that wait stand where their job is now; the caller's transaction has locked them before.

    What runs stays counted where it was placed, and follows when it is to be placed again.
    """
    return sql.execute("follow_queue", {"ids": list(execution_ids)}) if execution_ids else 0


def claim(hold: Hold) -> Claimed:
    """A transaction of its own, as `start` is: these are most of what workers say."""
    parameters = hold.parameters() | _ends(Move.CLAIM) | {"attempt_id": new_id()}
    rows = sql.fetch("claim_execution", parameters, Claimed, within=SECONDS)
    if not rows:
        raise StaleAttempt
    return rows[0]


def start(hold: Hold, receipt: Mapping[str, object]) -> None:
    parameters = hold.parameters() | _ends(Move.START) | {"receipt": json.dumps(dict(receipt))}
    if not sql.execute("start_execution", parameters, within=SECONDS):
        raise StaleAttempt


def succeed_alone(hold: Hold, ending: Ending) -> Moved | None:
    """Ends an attempt as a transaction of its own; None if it was cancelled, or if something follows from its end.

    None, too, if it is not this worker's: `end` tells which.
    """
    rows = _end(hold, ending, alone=True)
    return rows[0] if rows else None


def end(hold: Hold, ending: Ending) -> Moved:
    """Ends an attempt: for good, or back to `ready` or `backing_off`."""
    rows = _end(hold, ending, alone=False)
    if not rows:
        raise StaleAttempt
    if not rows[0].ended:
        follow_queue([hold.execution_id])
    return rows[0]


def _end(hold: Hold, ending: Ending, *, alone: bool) -> list[Moved]:
    becomes = target(ending.move)
    terminal = becomes in TERMINAL
    return sql.fetch(
        "end_attempt",
        hold.parameters()
        | _ends(ending.move)
        | {
            # One that is queued has no attempt yet: were it claimed while this waits, the attempt would stay open.
            "sources": [state for state in sources(ending.move) if state in STARTED],
            "alone": alone,
            "terminal": terminal,
            "reason": ending.reason.value if terminal else None,
            "attempt_reason": ending.reason.value,
            "exit_code": ending.exit_code,
            "signal": ending.signal,
            "error": ending.error,
            "result": None if ending.result is None else json.dumps(ending.result),
            "tries": int(ending.burns_try),
            "retry_seconds": ending.retry_seconds,
            "cpu_seconds": ending.cpu_seconds,
            "peak_memory_bytes": ending.peak_memory_bytes,
            "peak_disk_bytes": ending.peak_disk_bytes,
            "log_truncated": ending.log_truncated,
        },
        Moved,
        within=SECONDS if alone else None,
    )


def lose_held(workers: Mapping[UUID, int | None], *, reason: Reason = Reason.LOST) -> list[Moved]:
    """Takes away what workers held, but for the incarnation that is given for each and later ones (None: all of it).

    What somebody else has locked is left to the next pass of the reaper. `reason`: lost, or released by workers that
    have ended their runs and leave.
    """
    return _lose(workers, reason=reason) if workers else []


def lose_unlisted(worker_id: UUID, incarnation: int, listed: Sequence[UUID]) -> list[Moved]:
    """Takes away what a worker does not list among what it says that it runs, and what its former lives held."""
    return _lose({worker_id: incarnation}, listed=listed)


def _lose(
    workers: Mapping[UUID, int | None], *, listed: Sequence[UUID] | None = None, reason: Reason = Reason.LOST
) -> list[Moved]:
    wanted = {
        "worker_ids": list(workers),
        "keep_incarnations": list(workers.values()),
        "listed": None if listed is None else list(listed),
        "unlisted_seconds": conf.UNLISTED_SECONDS,
    }
    with transaction.atomic(savepoint=False):
        ids = [row.id for row in sql.fetch("lock_lost", wanted, _Row)]
        if not ids:
            return []
        fates: dict[str, object] = {"max_times_lost": conf.MAX_TIMES_LOST, "reason": reason.value}
        moved = sql.fetch("lose_held", {"ids": ids} | fates, Moved)
        follow_queue([row.execution_id for row in moved if not row.ended])
    return moved


def cancel(execution_ids: Iterable[UUID], *, by: str) -> list[Moved]:
    """Ends what waits; marks what runs, and wakes who runs it. What has ended or is cancelled already is left out."""
    parameters = {"ids": list(execution_ids), "by": by} | _ends(Move.CANCEL)
    cancelled = sql.fetch("request_cancel", parameters, _Cancelled)
    for worker_id in {row.held_by for row in cancelled if row.held_by}:
        transaction.on_commit(partial(wakeups.wake_worker, worker_id))
    return list(cancelled)


def _ends(move: Move) -> dict[str, object]:
    return {"sources": sources(move), "target": target(move)}
