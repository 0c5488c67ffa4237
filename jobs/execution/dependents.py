"""Dependencies: unblock or skip dependents in the transaction that finishes their upstream.

More dependents than one transaction should touch are left to `jobs.execution.fan_outs`.

A dependent is decided exactly once, by the last upstream, because its run is locked before its upstreams are counted.
A job without a schedule has one execution in every run of its upstreams, created when the run's first execution
finishes. An execution of a job with its own schedule waits in `blocked` for its upstreams' latest execution at its own
instant.

Lock order: finished executions, jobs of new executions, runs, blocked executions. Transactions only wait for runs, all
of them at once and sorted. Jobs that another transaction holds are left to fan-outs; other locked rows, and whatever a
lost race left blocked, are left to the sweep.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.db import transaction

from jobs.db import sql
from jobs.db.row_isolation import apply_isolated
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.states import State
from jobs.domain.worker_protocol import MovedExecution
from jobs.execution import transitions
from jobs.execution.delays import rearm_delays
from jobs.execution.transitions import NewExecution
from jobs.models.execution import Trigger
from jobs.models.fan_out import FIRST, FanOutStep

logger = logging.getLogger(__name__)

# Runs share this many locks: a transaction that touches thousands of runs must not fill Postgres's lock table.
RUN_LOCK_STRIPES = 128


@dataclass(frozen=True, slots=True)
class SweepResult:
    examined: int = 0
    unblocked: int = 0
    skipped: int = 0
    after: UUID | None = None  # where the next sweep continues; None: from the start


@dataclass(frozen=True, slots=True)
class MissingExecution:
    """An execution that a run lacks; the job may be paused or cancelled and not take part."""

    job_id: UUID
    run_id: UUID
    participates: bool


@dataclass(frozen=True, slots=True)
class BlockedExecution:
    """A blocked execution; it waits by its own schedule's instant, or within the run of its upstreams."""

    id: UUID
    run_id: UUID
    by_instant: bool

    @property
    def lock_number(self) -> int:
        return self.run_id.int % RUN_LOCK_STRIPES


@dataclass(frozen=True, slots=True)
class _RunLock:
    number: int
    held: bool


@dataclass(frozen=True, slots=True)
class _Decision:
    execution_id: UUID
    unblocks: bool


@dataclass(frozen=True, slots=True)
class _EdgeCount:
    number: int  # counted from one
    edges: int


@dataclass(frozen=True, slots=True)
class _UpstreamsBySize:
    """Finished executions with dependents: those to resolve now, and those with too many."""

    small: list[MovedExecution]
    too_large: list[MovedExecution]

    def all(self) -> list[MovedExecution]:
        return self.small + self.too_large


@dataclass(frozen=True, slots=True)
class _Resolution:
    unblocked: list[MovedExecution]
    skipped: list[MovedExecution]


def resolve_or_defer_dependents(ended: Sequence[MovedExecution]) -> None:
    """Resolve the dependents in the transaction that finished these, or leave them to beat's fan-outs.

    Finishing never fails because of dependents, and never touches more than a few hundred of them.
    """
    upstreams = _group_by_size(ended).all()
    if not upstreams:
        return
    try:
        with transaction.atomic():
            resolve_dependents(upstreams)
    except Exception:
        logger.exception("Deferred the dependents of %d executions: resolving them failed", len(upstreams))
        defer_dependents(upstreams)


def resolve_dependents(moved: Sequence[MovedExecution], *, wait: bool = True) -> int:
    """Unblock or skip what waited for these, level by level: a skipped execution has finished for its dependents.

    `wait`: wait for runs that another transaction is resolving. Deeper levels never wait: they hold locks already.
    Work too large for one transaction is deferred. Returns how many were unblocked.
    """
    unblocked, decided_count = 0, 0
    sized = _group_by_size([m for m in moved if m.ended])
    runs, locked_runs = set(sized.all()), set[int]()
    for _ in range(limits.FAN_OUT_MAX_LEVELS):
        if not sized.all() or decided_count >= limits.FAN_OUT_BATCH_EXECUTIONS:
            break
        defer_dependents(sized.too_large)
        ended = sized.small
        few = _create_missing_if_few([m for m in ended if m in runs])
        waiting = _find_blocked_if_few(ended) if few else None
        if waiting is None:
            defer_dependents(ended)
            return unblocked
        decided = _lock_and_resolve(waiting, locked_runs, wait=wait)
        unblocked += len(decided.unblocked)
        decided_count += len(decided.unblocked) + len(decided.skipped)
        # Deeper down only the root of a run can lead to jobs that have no execution in it yet.
        sized, wait = _group_by_size(decided.skipped), False
        runs = {m for m in sized.all() if _started_own_run(m)}
    defer_dependents(sized.all())
    return unblocked


def defer_dependents(ended: Sequence[MovedExecution]) -> None:
    """Let beat resolve the dependents, page by page, after the caller's commit."""
    if ended:
        defer_fan_outs(_upstream_parameters(ended), steps=tuple(FanOutStep))


def defer_fan_outs(
    upstreams: dict[str, object], *, steps: Sequence[FanOutStep], after: str = FIRST, wait_seconds: float = 0
) -> None:
    how = {"steps": [step.value for step in steps], "after": after, "wait_seconds": wait_seconds}
    sql.execute("defer_fan_outs", upstreams | how)


def create_fired_executions(executions: Sequence[NewExecution], dependent_jobs: Collection[UUID]) -> list[UUID]:
    """Insert fired executions; those of jobs with upstreams are blocked instead of ready.

    Returns the blocked ones, for `resolve_just_fired` once the schedules that fired them are advanced.
    """
    new = [
        replace(e, state=State.BLOCKED) if e.state is State.READY and e.job_id in dependent_jobs else e
        for e in executions
    ]
    ids = transitions.create_executions(new)
    return [execution_id for execution_id, e in zip(ids, new, strict=True) if e.state is State.BLOCKED]


def resolve_just_fired(execution_ids: Sequence[UUID]) -> int:
    """Resolve the blocked executions that the caller's transaction has just fired, as far as possible now."""
    if not execution_ids:
        return 0
    decided = _apply_decisions(sql.fetch("evaluate_by_instant", {"ids": list(execution_ids)}, _Decision))
    return len(decided.unblocked) + resolve_dependents(decided.skipped, wait=False)


def sweep_blocked(*, limit: int = limits.SWEEP_BATCH_EXECUTIONS, after: UUID | None = None) -> SweepResult:
    """Resolve one page of blocked executions that a lost race left behind; any number of beats may sweep."""
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        page = sql.fetch("read_blocked_page", {"after": after or UUID(int=0), "limit": limit}, BlockedExecution)
        # Without locks first: usually there is nothing to do, and locking writes to every row.
        decidable = find_resolvable(page)
    rows = [row for row in page if row.id in decidable]
    counts = apply_isolated(rows, resolve_blocked, failed=lambda _: None)
    unblocked, skipped = (sum(count[n] for count in counts) for n in (0, 1))
    return SweepResult(len(page), unblocked, skipped, page[-1].id if len(page) == limit else None)


def find_resolvable(rows: Sequence[BlockedExecution]) -> set[UUID]:
    """Return the executions that could be decided now, without locks."""
    return {decision.execution_id for decision in _evaluate(rows)}


def resolve_blocked(rows: Sequence[BlockedExecution]) -> tuple[int, int]:
    """Decide what can be decided now, and the dependents of that; return how many were unblocked and skipped."""
    decided = _lock_and_resolve(rows, set(), wait=False)
    return len(decided.unblocked) + resolve_dependents(decided.skipped, wait=False), len(decided.skipped)


def create_missing_executions(missing: Sequence[MissingExecution]) -> None:
    """Insert the executions that runs lack; the caller holds their jobs by `share_lock_jobs`."""
    transitions.create_executions(
        [NewExecution(m.job_id, Trigger.DEPENDENCY, state=State.BLOCKED, run_id=m.run_id) for m in missing]
    )


def share_lock_jobs(job_ids: set[UUID]) -> set[UUID]:
    """Lock the jobs of new executions; return the jobs that another transaction holds.

    An edit that makes another version current waits, so the program of this one is not deleted. The foreign keys would
    wait for a job only at the commit, and then the upstream's outcome would fail as well.
    """
    return job_ids - set(sql.fetch_ids("share_lock_jobs", {"job_ids": sorted(job_ids)})) if job_ids else set()


def _group_by_size(ended: Sequence[MovedExecution]) -> _UpstreamsBySize:
    """Return those with dependents: small ones first, as many as one transaction may examine, and the others."""
    if not ended:
        return _UpstreamsBySize([], [])
    wanted = {"job_ids": [m.job_id for m in ended], "limit": limits.FAN_OUT_BATCH_EXECUTIONS + 1}
    sized = _UpstreamsBySize([], [])
    edges = 0
    for row in sorted(sql.fetch("count_dependency_edges", wanted, _EdgeCount), key=lambda row: row.edges):
        edges += row.edges
        fits = row.edges <= limits.FAN_OUT_BATCH_EXECUTIONS and edges <= limits.FAN_OUT_MAX_EDGES
        (sized.small if fits else sized.too_large).append(ended[row.number - 1])
    return sized


def _create_missing_if_few(ended: Sequence[MovedExecution]) -> bool:
    """Insert what the runs of these lack; False: it is too much, or another transaction holds one of the jobs.

    Then none is inserted: dependents of a part of them would not be found again.
    """
    if not ended:
        return True
    limit = limits.FAN_OUT_BATCH_EXECUTIONS + 1
    missing = sql.fetch("find_missing_dependents", _upstream_parameters(ended) | {"limit": limit}, MissingExecution)
    participants = [m for m in missing if m.participates]
    if len(missing) == limit or share_lock_jobs({m.job_id for m in participants}):
        return False
    create_missing_executions(participants)
    return True


def _find_blocked_if_few(ended: Sequence[MovedExecution]) -> list[BlockedExecution] | None:
    """Return what waits for these; None: too much for one transaction."""
    limit = limits.FAN_OUT_MAX_EDGES + 1
    rows = sql.fetch("find_waiting_dependents", _upstream_parameters(ended) | {"limit": limit}, BlockedExecution)
    waiting = {row.id: row for row in rows}
    few = len(rows) < limit and len(waiting) <= limits.FAN_OUT_BATCH_EXECUTIONS
    return list(waiting.values()) if few else None


def _lock_and_resolve(waiting: Sequence[BlockedExecution], locked_runs: set[int], *, wait: bool) -> _Resolution:
    """Lock their runs, adding them to `locked_runs`, and decide: no other transaction counts the same upstreams."""
    wanted = sorted({row.lock_number for row in waiting} - locked_runs)
    if wanted:
        locks = sql.fetch("lock_runs", {"numbers": wanted, "wait": wait}, _RunLock)
        locked_runs |= {lock.number for lock in locks if lock.held}
    ids = [row.id for row in waiting if row.lock_number in locked_runs]
    if not ids:
        return _Resolution([], [])
    return _apply_decisions(_evaluate(sql.fetch("lock_blocked_executions", {"ids": ids}, BlockedExecution)))


def _evaluate(waiting: Sequence[BlockedExecution]) -> list[_Decision]:
    in_runs = [row.id for row in waiting if not row.by_instant]
    by_instant = [row.id for row in waiting if row.by_instant]
    decisions = sql.fetch("evaluate_in_runs", {"ids": in_runs}, _Decision) if in_runs else []
    return decisions + (sql.fetch("evaluate_by_instant", {"ids": by_instant}, _Decision) if by_instant else [])


def _apply_decisions(decisions: Sequence[_Decision]) -> _Resolution:
    unblocked = transitions.unblock([d.execution_id for d in decisions if d.unblocks])
    skipped = transitions.skip([d.execution_id for d in decisions if not d.unblocks])
    rearm_delays([m for m in skipped if _started_own_run(m)])
    return _Resolution(unblocked, skipped)


def _upstream_parameters(ended: Sequence[MovedExecution]) -> dict[str, object]:
    return {"job_ids": [m.job_id for m in ended], "run_ids": [m.run_id for m in ended]}


def _started_own_run(moved: MovedExecution) -> bool:
    """A fired execution does, one that was created for its upstreams does not."""
    return moved.execution_id == moved.run_id
