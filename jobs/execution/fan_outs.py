"""Fan-outs: resolve, page by page, dependents that are too many for the transaction that finished their upstream.

A fan-out is a row committed with that outcome, so no crash loses it. It first creates the executions that the run
lacks, at any distance; until then nothing in the run is decided, because an upstream without an execution would count
as one that takes no part. Then it decides the blocked ones. An execution whose job another transaction holds gets its
own fan-out, which waits; meanwhile everything whose upstreams exist is decided. Any number of beats resolve at once,
each other fan-outs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction
from django.db.models import F

from jobs.db import sql
from jobs.db.row_isolation import is_database_away
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.execution.dependents import (
    BlockedExecution,
    MissingExecution,
    create_missing_executions,
    defer_fan_outs,
    resolve_blocked,
    share_lock_jobs,
)
from jobs.models import Execution
from jobs.models.fan_out import FIRST, ITSELF, FanOut, FanOutStep

logger = logging.getLogger(__name__)

_FIRST, _ITSELF = UUID(FIRST), UUID(ITSELF)


@dataclass(frozen=True, slots=True)
class FanOutResult:
    created: int = 0
    unblocked: int = 0
    skipped: int = 0
    more: bool = False  # there may be more to do at once


@dataclass(frozen=True, slots=True)
class _FanOut:
    id: UUID
    run_id: UUID
    job_id: UUID
    after: UUID


@dataclass(frozen=True, slots=True)
class _Dependent:
    number: int  # of its fan-out, counting from one
    run_id: UUID
    job_id: UUID


@dataclass(frozen=True, slots=True)
class _MissingDependent(MissingExecution):
    """A missing execution to create; here `participates` means that other jobs depend on it."""


def resolve_fan_outs(*, limit: int = limits.FAN_OUT_BATCH_EXECUTIONS) -> FanOutResult:
    """Create or decide one page of dependents in one transaction; creating comes first."""
    try:
        return _resolve(limit, fan_outs=limit)
    except Exception as error:
        if is_database_away(error):
            raise
        logger.exception("A page of fan-outs failed; continuing with one fan-out at a time")
    return _resolve_one(limit)


def _resolve_one(limit: int) -> FanOutResult:
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        locked: list[_FanOut] = []
        try:
            with transaction.atomic():
                return _resolve(limit, fan_outs=1, locked=locked)
        except Exception as error:
            if is_database_away(error):
                raise
            logger.exception("Fan-out %s failed; retrying in %g s", locked, limits.FAILED_ROW_RETRY_SECONDS)
        _reschedule(locked, after=None, wait_seconds=limits.FAILED_ROW_RETRY_SECONDS)
    return FanOutResult(more=True)


def _resolve(limit: int, *, fan_outs: int, locked: list[_FanOut] | None = None) -> FanOutResult:
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        for step in FanOutStep:
            found = sql.fetch("lock_due_fan_outs", {"step": step.value, "limit": fan_outs}, _FanOut)
            if not found:
                continue
            if locked is not None:
                locked.extend(found)
            # These wait to create the job's own execution, before its dependents.
            own = [f for f in found if f.after == _ITSELF]
            paged = [f for f in found if f.after != _ITSELF]
            page = _fetch_page(paged, limit)
            if step is FanOutStep.CREATE:
                result = FanOutResult(created=_create_missing(own, page), more=True)
            else:
                unblocked, skipped = _resolve_page([*own, *page])
                result = FanOutResult(unblocked=unblocked, skipped=skipped, more=True)
                _reschedule(own, after=_FIRST, wait_seconds=0)
            _finish_page(paged, page, full=len(page) == limit)
            return result
    return FanOutResult()


def _fetch_page(fan_outs: Sequence[_FanOut], limit: int) -> list[_Dependent]:
    parameters = {
        "run_ids": [f.run_id for f in fan_outs],
        "job_ids": [f.job_id for f in fan_outs],
        "after": [f.after for f in fan_outs],
        "limit": limit,
    }
    return sql.fetch("read_fan_out_page", parameters, _Dependent)


def _create_missing(own: Sequence[_FanOut], page: Sequence[_Dependent]) -> int:
    missing = sql.fetch("find_missing_in_runs", _run_parameters([*own, *page]), _MissingDependent)
    held_jobs = share_lock_jobs({f.job_id for f in missing})
    free = [f for f in missing if f.job_id not in held_jobs]
    held = [f for f in missing if f.job_id in held_jobs]
    create_missing_executions(free)
    upstreams = [f for f in free if f.participates]
    if upstreams:
        defer_fan_outs(_run_parameters(upstreams), steps=[FanOutStep.CREATE])
    if held:
        defer_fan_outs(
            _run_parameters(held),
            steps=[FanOutStep.CREATE],
            after=ITSELF,
            wait_seconds=limits.FAN_OUT_LOCKED_RETRY_SECONDS,
        )
    if own:
        _continue_created(own, {(f.run_id, f.job_id) for f in held})
    return len(free)


def _continue_created(own: Sequence[_FanOut], held: set[tuple[UUID, UUID]]) -> None:
    """Continue with the dependents of executions that exist by now; drop fan-outs of jobs that left the run."""
    _reschedule(
        [f for f in own if (f.run_id, f.job_id) in held], after=None, wait_seconds=limits.FAN_OUT_LOCKED_RETRY_SECONDS
    )
    freed = [f for f in own if (f.run_id, f.job_id) not in held]
    members = Execution.objects.filter(run_id__in={f.run_id for f in freed}).exclude(run_id=F("id"))
    rows = members.filter(job_id__in={f.job_id for f in freed})
    existing = set(rows.values_list("run_id", "job_id"))
    created = [f for f in freed if (f.run_id, f.job_id) in existing]
    _reschedule(created, after=_FIRST, wait_seconds=0)
    if created:
        defer_fan_outs(_run_parameters(created), steps=[FanOutStep.DECIDE], after=ITSELF)
    FanOut.objects.filter(id__in=[f.id for f in freed if f not in created]).delete()


def _resolve_page(page: Sequence[_FanOut | _Dependent]) -> tuple[int, int]:
    waiting = sql.fetch(
        "find_waiting_in_runs", _run_parameters(page) | {"limit": limits.FAN_OUT_BATCH_EXECUTIONS}, BlockedExecution
    )
    return resolve_blocked(waiting)


def _run_parameters(rows: Sequence[_FanOut | _Dependent | MissingExecution]) -> dict[str, object]:
    return {"job_ids": [row.job_id for row in rows], "run_ids": [row.run_id for row in rows]}


def _finish_page(fan_outs: Sequence[_FanOut], page: Sequence[_Dependent], *, full: bool) -> None:
    """Delete the finished fan-outs and reschedule the one that a full page stopped in."""
    done = fan_outs[: page[-1].number - 1] if full else fan_outs
    FanOut.objects.filter(id__in=[f.id for f in done]).delete()
    if full:
        _reschedule(fan_outs[page[-1].number - 1 : page[-1].number], after=page[-1].job_id, wait_seconds=0)


def _reschedule(fan_outs: Sequence[_FanOut], *, after: UUID | None, wait_seconds: float) -> None:
    ids = [f.id for f in fan_outs]
    if ids:
        sql.execute("reschedule_fan_outs", {"ids": ids, "after": after, "wait_seconds": wait_seconds})
