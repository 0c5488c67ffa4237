"""What a new firing does when its job is busy: waits, is skipped, or has the oldest ones cancelled for it.

`skip` and `cancel_running` are decided under the job's lock: two schedules of one job may fire on two beats at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from jobs import conf, sql
from jobs.models import Job, Overlap
from jobs.services.transitions import NewExecution
from jobs.states import Reason, State

# More than anybody's max_concurrency can hold at once, and an answer of bounded size.
MOST_CANCELLED = 1000


@dataclass(frozen=True, slots=True)
class Policy:
    overlap: str | None  # None: it always fires
    max_concurrency: int | None

    @property
    def needs_lock(self) -> bool:
        return self.overlap in (Overlap.SKIP, Overlap.CANCEL_RUNNING) and self.max_concurrency is not None


@dataclass(frozen=True, slots=True)
class Decided:
    executions: list[NewExecution]
    cancel: list[UUID]


@dataclass(frozen=True, slots=True)
class _Unfinished:
    job_id: UUID
    count: int
    oldest: list[UUID] | None  # of a job that has none cancelled, nobody asks


def apply_overlaps(executions: Sequence[NewExecution], policies: Mapping[UUID | None, Policy]) -> Decided:
    """Turns those that may not run into skipped ones, and says whom to cancel for the others; policies by schedule."""
    firing = {e.job_id for e in executions if e.state is State.READY}
    if not firing:
        return Decided(list(executions), [])
    _lock_jobs({e.job_id for e in executions if policies[e.schedule_id].needs_lock})
    rows = _unfinished(executions, firing, policies)
    busy = {row.job_id: row.count for row in rows}
    oldest = {row.job_id: row.oldest for row in rows}
    decided: list[NewExecution] = []
    cancel: list[UUID] = []
    fresh: dict[UUID, list[int]] = defaultdict(list)  # of each job, where in `decided` those stand that may give way
    for execution in executions:
        if execution.state is not State.READY:
            decided.append(execution)
            continue
        policy, count = policies[execution.schedule_id], busy.get(execution.job_id, 0)
        reason = _refusal(policy, count)
        if reason is not None:
            decided.append(replace(execution, state=State.SKIPPED, reason=reason))
            continue
        while _is_full(policy, count):
            if victims := oldest.get(execution.job_id):
                cancel.append(victims.pop(0))
            elif superseded := fresh[execution.job_id]:
                # Late instants of one batch: the later ones end the earlier ones before they exist.
                at = superseded.pop(0)
                decided[at] = replace(decided[at], state=State.SKIPPED, reason=Reason.OVERLAP)
            else:
                break
            count -= 1
        busy[execution.job_id] = count + 1
        if policy.overlap == Overlap.CANCEL_RUNNING:
            fresh[execution.job_id].append(len(decided))
        decided.append(execution)
    return Decided(decided, cancel)


def _unfinished(
    executions: Sequence[NewExecution], firing: set[UUID], policies: Mapping[UUID | None, Policy]
) -> list[_Unfinished]:
    limits = [policies[e.schedule_id].max_concurrency or 0 for e in executions]
    cancelling = {e.job_id for e in executions if policies[e.schedule_id].overlap == Overlap.CANCEL_RUNNING}
    return sql.fetch(
        "unfinished_of_jobs",
        {
            "job_ids": sorted(firing),
            "cancelling": sorted(cancelling),
            "enough": max(conf.MAX_BACKLOG, *limits),
            "most": MOST_CANCELLED,
        },
        _Unfinished,
    )


def _refusal(policy: Policy, busy: int) -> Reason | None:
    if policy.overlap == Overlap.SKIP and policy.max_concurrency is not None and busy >= policy.max_concurrency:
        return Reason.OVERLAP
    if policy.overlap == Overlap.QUEUE and busy >= conf.MAX_BACKLOG:
        return Reason.BACKLOG
    return None


def _is_full(policy: Policy, busy: int) -> bool:
    """So that a new one has others cancelled for it."""
    return (
        policy.overlap == Overlap.CANCEL_RUNNING
        and policy.max_concurrency is not None
        and busy >= policy.max_concurrency
    )


def _lock_jobs(job_ids: Iterable[UUID]) -> None:
    """In one order, so that two beats never wait for each other in a circle."""
    wanted = sorted(job_ids)
    if wanted:
        list(Job.objects.select_for_update(no_key=True).filter(id__in=wanted).order_by("id").values_list("id"))
