"""What runs after what: decides, in the transaction that ended an execution, the executions that waited for it.

A dependent is decided once, by whoever comes last, because its run is locked before its upstreams are counted. A job
without a schedule of its own has one execution in every run of its upstreams, created when the run's first execution
ends. One with a schedule of its own waits in `blocked` for the latest of its upstreams at its own instant.

Locks, in this order: what the caller ended, then the programs of what is created, then runs, then the waiting rows.
Only runs are waited for, all of them at once and sorted, and programs that are being deleted, by whom nobody of us is
waited for. What somebody else holds otherwise, or what a judgment that nobody saw left behind, is for the sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.db import transaction

from jobs import conf, sql
from jobs.models.execution import Execution, Trigger
from jobs.protocol import Moved
from jobs.services import transitions
from jobs.services.database import bounded
from jobs.services.delays import rearm_delays
from jobs.services.transitions import NewExecution
from jobs.states import State

# Runs share this many locks: a transaction that touches thousands of runs must not fill Postgres's table of locks.
RUN_LOCKS = 128
# In each somebody must edit a job and delete its former program at the very moment.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class SweepResult:
    looked_at: int = 0
    unblocked: int = 0
    skipped: int = 0
    after: UUID | None = None  # where the next sweep goes on; None: from the start


@dataclass(frozen=True, slots=True)
class _Missing:
    job_id: UUID
    run_id: UUID


@dataclass(frozen=True, slots=True)
class _Program:
    id: UUID
    gone: bool


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A blocked execution, and whether it waits by its own schedule's instant or within the run of its upstreams."""

    id: UUID
    run_id: UUID
    by_instant: bool

    @property
    def lock(self) -> int:
        return self.run_id.int % RUN_LOCKS


@dataclass(frozen=True, slots=True)
class _Locked:
    number: int
    held: bool


@dataclass(frozen=True, slots=True)
class _Verdict:
    execution_id: UUID
    runs: bool


@dataclass(frozen=True, slots=True)
class _Decided:
    unblocked: list[Moved]
    skipped: list[Moved]


def resolve_dependents(moved: Sequence[Moved], *, patient: bool = True) -> int:
    """Unblocks or skips what waited for these; a skipped one has ended for its own dependents in turn, level by level.

    `patient`: waits for runs that somebody else is resolving. Further levels never do: they hold locks already.
    """
    unblocked = 0
    ended = [m for m in moved if m.ended]
    runs, held = ended, set[int]()
    while ended:
        missing = sql.fetch("missing_dependents", _upstreams(runs), _Missing) if runs else []
        _create_missing(missing)
        decided = _decide(sql.fetch("waiting_dependents", _upstreams(ended), _Waiting), held, patient=patient)
        unblocked += len(decided.unblocked)
        # Further down only what began a run of its own can lead to jobs that have no execution in it yet.
        ended, patient = decided.skipped, False
        runs = [m for m in ended if _began_a_run(m)]
    return unblocked


def create_fired(executions: Sequence[NewExecution], dependent_jobs: Collection[UUID]) -> list[UUID]:
    """Stores what schedules fire; what is of jobs with upstreams waits instead of being ready.

    Returns the ids of those that wait, for `judge_scheduled`, once the schedules that fired them stand at their next.
    """
    new = [
        replace(e, state=State.BLOCKED) if e.state is State.READY and e.job_id in dependent_jobs else e
        for e in executions
    ]
    ids = transitions.create_executions(new)
    return [own for own, e in zip(ids, new, strict=True) if e.state is State.BLOCKED]


def judge_scheduled(execution_ids: Sequence[UUID]) -> int:
    """Decides what can be decided at once of executions that the caller's own transaction has just fired, blocked."""
    if not execution_ids:
        return 0
    decided = _move(sql.fetch("judge_scheduled", {"ids": list(execution_ids)}, _Verdict))
    return len(decided.unblocked) + resolve_dependents(decided.skipped, patient=False)


def sweep_blocked(*, limit: int = conf.SWEEP_BATCH_EXECUTIONS, after: UUID | None = None) -> SweepResult:
    """One batch of blocked executions is looked at again, whoever should have decided them; any number may sweep."""
    with transaction.atomic(), bounded(statement_seconds=10):
        page = sql.fetch("blocked_page", {"after": after or UUID(int=0), "limit": limit}, _Waiting)
        # Without locks first: nearly always nothing is to be done, and locking writes to every row.
        decidable = {verdict.execution_id for verdict in _judge(page)}
        decided = _decide([row for row in page if row.id in decidable], set(), patient=False)
        unblocked = len(decided.unblocked) + resolve_dependents(decided.skipped, patient=False)
    return SweepResult(len(page), unblocked, len(decided.skipped), page[-1].id if len(page) == limit else None)


def _create_missing(missing: Sequence[_Missing]) -> None:
    """Nobody holds their jobs, so an edit may put another version in force and its old program may be deleted."""
    new = [NewExecution(m.job_id, Trigger.DEPENDENCY, state=State.BLOCKED, run_id=m.run_id) for m in missing]
    for tries_left in reversed(range(_TRIES if new else 0)):
        ids = transitions.create_executions(new)
        if not tries_left or not any(program.gone for program in sql.fetch("hold_programs", {"ids": ids}, _Program)):
            return
        # Once more, in the version that is in force by now.
        Execution.objects.filter(id__in=ids).delete()


def _decide(waiting: Sequence[_Waiting], held: set[int], *, patient: bool) -> _Decided:
    """Under the locks of their runs, which are added to `held`: nobody else counts the same upstreams meanwhile."""
    wanted = sorted({row.lock for row in waiting} - held)
    if wanted:
        locked = sql.fetch("lock_runs", {"numbers": wanted, "wait": patient}, _Locked)
        held |= {row.number for row in locked if row.held}
    ids = [row.id for row in waiting if row.lock in held]
    if not ids:
        return _Decided([], [])
    return _move(_judge(sql.fetch("lock_dependents", {"ids": ids}, _Waiting)))


def _judge(waiting: Sequence[_Waiting]) -> list[_Verdict]:
    in_runs = [row.id for row in waiting if not row.by_instant]
    by_instant = [row.id for row in waiting if row.by_instant]
    verdicts = sql.fetch("judge_dependents", {"ids": in_runs}, _Verdict) if in_runs else []
    return verdicts + (sql.fetch("judge_scheduled", {"ids": by_instant}, _Verdict) if by_instant else [])


def _move(verdicts: Sequence[_Verdict]) -> _Decided:
    unblocked = transitions.unblock([v.execution_id for v in verdicts if v.runs])
    skipped = transitions.skip([v.execution_id for v in verdicts if not v.runs])
    rearm_delays([m for m in skipped if _began_a_run(m)])
    return _Decided(unblocked, skipped)


def _upstreams(ended: Sequence[Moved]) -> dict[str, object]:
    return {"job_ids": [m.job_id for m in ended], "run_ids": [m.run_id for m in ended]}


def _began_a_run(moved: Moved) -> bool:
    """As what a schedule fires does, unlike what upstreams fire."""
    return moved.execution_id == moved.run_id
