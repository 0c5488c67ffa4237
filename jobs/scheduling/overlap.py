"""Overlap policies: a firing of a busy job waits, is skipped or cancels others.

`skip` and `cancel_running` are decided under the job's lock, since two beats may fire schedules of one job at once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from jobs.db import sql
from jobs.domain import limits
from jobs.domain.choices import Overlap
from jobs.domain.states import Reason, State
from jobs.execution.transitions import NewExecution
from jobs.models import Execution, Job

# More than any max_concurrency allows at once; it bounds the size of the result.
MAX_CANCELLED_EXECUTIONS = 1000


@dataclass(frozen=True, slots=True)
class OverlapPolicy:
    overlap: str | None  # None: always fire
    max_concurrency: int | None

    @property
    def needs_lock(self) -> bool:
        return self.overlap in (Overlap.SKIP, Overlap.CANCEL_RUNNING) and self.max_concurrency is not None

    @property
    def count_limit(self) -> int:
        """Return how many unfinished executions are worth counting: more make no difference."""
        if self.overlap == Overlap.QUEUE:
            return limits.MAX_BACKLOG
        return (self.max_concurrency or 0) + self.max_cancelled if self.needs_lock else 0

    @property
    def max_cancelled(self) -> int:
        return MAX_CANCELLED_EXECUTIONS if self.overlap == Overlap.CANCEL_RUNNING and self.needs_lock else 0


@dataclass(frozen=True, slots=True)
class OverlapDecision:
    executions: list[NewExecution]
    cancel: dict[UUID, UUID]  # execution id to job id

    def without(self, jobs: Collection[UUID]) -> OverlapDecision:
        return OverlapDecision(
            [execution for execution in self.executions if execution.job_id not in jobs],
            {execution_id: job_id for execution_id, job_id in self.cancel.items() if job_id not in jobs},
        )


@dataclass(frozen=True, slots=True)
class _UnfinishedCount:
    job_id: UUID
    count: int
    oldest: list[UUID] | None  # read only if executions may be cancelled


def apply_overlaps(
    executions: Sequence[NewExecution], policies: Mapping[UUID | None, OverlapPolicy]
) -> OverlapDecision:
    """Turn executions that may not run into skipped ones; choose executions to cancel.

    `policies` are by schedule. The caller has locked the jobs whose policies need it (`try_lock_jobs`).
    """
    firing = {e.job_id for e in executions if e.state is State.READY}
    if not firing:
        return OverlapDecision(list(executions), {})
    rows = _count_unfinished(executions, firing, policies)
    busy = {row.job_id: row.count for row in rows}
    oldest = {row.job_id: row.oldest for row in rows}
    decided: list[NewExecution] = []
    cancel: dict[UUID, UUID] = {}
    fresh: dict[UUID, list[int]] = defaultdict(list)  # indexes in `decided` of cancellable executions, by job
    for execution in executions:
        if execution.state is not State.READY:
            decided.append(execution)
            continue
        policy, count = policies[execution.schedule_id], busy.get(execution.job_id, 0)
        reason = _skip_reason(policy, count)
        if reason is not None:
            decided.append(replace(execution, state=State.SKIPPED, reason=reason))
            continue
        while _is_full(policy, count):
            if victims := oldest.get(execution.job_id):
                cancel[victims.pop(0)] = execution.job_id
            elif superseded := fresh[execution.job_id]:
                # Late instants of one batch: the later ones cancel the earlier ones before they exist.
                index = superseded.pop(0)
                decided[index] = replace(decided[index], state=State.SKIPPED, reason=Reason.OVERLAP)
            else:
                break
            count -= 1
        busy[execution.job_id] = count + 1
        if policy.overlap == Overlap.CANCEL_RUNNING:
            fresh[execution.job_id].append(len(decided))
        decided.append(execution)
    return OverlapDecision(decided, cancel)


def _count_unfinished(
    executions: Sequence[NewExecution], firing: set[UUID], policies: Mapping[UUID | None, OverlapPolicy]
) -> list[_UnfinishedCount]:
    by_job: dict[UUID, list[OverlapPolicy]] = {job_id: [] for job_id in sorted(firing)}
    for execution in executions:
        if execution.job_id in by_job:
            by_job[execution.job_id].append(policies[execution.schedule_id])
    jobs = [
        {
            "id": str(job_id),
            "count_limit": max(policy.count_limit for policy in each),
            "max_cancelled": max(policy.max_cancelled for policy in each),
        }
        for job_id, each in by_job.items()
    ]
    return sql.fetch("count_unfinished_of_jobs", {"jobs": json.dumps(jobs)}, _UnfinishedCount)


def _skip_reason(policy: OverlapPolicy, busy: int) -> Reason | None:
    if policy.overlap == Overlap.SKIP and policy.max_concurrency is not None and busy >= policy.max_concurrency:
        return Reason.OVERLAP
    if policy.overlap == Overlap.QUEUE and busy >= limits.MAX_BACKLOG:
        return Reason.BACKLOG
    return None


def _is_full(policy: OverlapPolicy, busy: int) -> bool:
    """Return whether a new execution must cancel others."""
    return (
        policy.overlap == Overlap.CANCEL_RUNNING
        and policy.max_concurrency is not None
        and busy >= policy.max_concurrency
    )


def try_lock_jobs(job_ids: Collection[UUID]) -> set[UUID]:
    """Lock jobs without waiting, which would delay all other schedules; return those locked."""
    if not job_ids:
        return set()
    rows = Job.objects.select_for_update(no_key=True, skip_locked=True).filter(id__in=job_ids).order_by("id")
    return set(rows.values_list("id", flat=True))


def lock_cancelled(decided: OverlapDecision) -> set[UUID]:
    """Lock executions to cancel without waiting; return the jobs of those not locked."""
    rows = Execution.objects.select_for_update(no_key=True, skip_locked=True).filter(id__in=list(decided.cancel))
    locked = set(rows.order_by("id").values_list("id", flat=True))
    return {job_id for execution_id, job_id in decided.cancel.items() if execution_id not in locked}
