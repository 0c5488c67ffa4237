"""Placement: assign ready executions to workers.

One beat at a time places for a pool. It takes the pool's lock before it reads anything, so it sees what every earlier
pass has committed, and capacity and limits cannot be used twice.

A placement commits without waiting for the disk: the claim waits, and Postgres writes in order, so no claim survives a
crash that its placement did not. An execution whose placement a crash undid is ready again and is placed again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import UUID

from django.db import DatabaseError, transaction

from jobs.access.quotas import LimitedOwner, lock_limited_owners, read_limited_owners
from jobs.db.locks import placement_lock_name
from jobs.db.transactions import with_timeouts
from jobs.dispatch.pool_plan import PassLimits, PoolPlan
from jobs.dispatch.scan_cursor import ScanProgress
from jobs.domain import limits
from jobs.domain.errors import InvalidInput
from jobs.domain.messages import Publication
from jobs.execution import parking, transitions
from jobs.execution.transitions import Placement
from jobs.models import Queue, Worker

NO_PROGRESS: Mapping[str, ScanProgress] = MappingProxyType({})

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlaceResult:
    publications: tuple[Publication, ...] = ()  # messages to send now
    held: int = 0
    contended: bool = False  # another beat was placing for a pool: try again soon
    more: bool = False  # it stopped early and something changed: there may be more to place at once
    full: bool = False  # a pool has no capacity left until an execution finishes
    more_to_scan: bool = False  # there is capacity, and not every candidate was scanned
    # Pools whose pass could not scan every candidate, and where the next pass continues.
    resume: Mapping[str, ScanProgress] = field(default_factory=dict)

    @property
    def placed(self) -> int:
        return len(self.publications)


class _LimitsContended(Exception):
    """Another pass is placing for owners with a limit."""


def read_pools() -> list[str]:
    return list(Queue.objects.order_by("pool").values_list("pool", flat=True).distinct())


def place_ready_executions(
    *,
    limit: int = limits.PLACE_BATCH_EXECUTIONS,
    scan_limit: int = limits.PLACE_SCAN_EXECUTIONS,
    pools: Sequence[str] | None = None,
    resume: Mapping[str, ScanProgress] = NO_PROGRESS,
) -> PlaceResult:
    """Place one batch for every pool, each in its own transaction.

    `pools`: read by the caller a moment ago. `resume`: from an earlier result, where scans of pools continue.
    """
    results: list[PlaceResult] = []
    failure: DatabaseError | None = None
    for pool in read_pools() if pools is None else pools:
        try:
            results.append(_place_pool(pool, PassLimits(limit, scan_limit), resume.get(pool)))
        except DatabaseError as error:
            logger.exception("Placing in pool %s failed", pool)
            failure = error
    if failure is not None and not any(result.publications for result in results):
        raise failure
    return PlaceResult(
        publications=tuple(publication for r in results for publication in r.publications),
        held=sum(r.held for r in results),
        contended=any(r.contended for r in results),
        more=any(r.more for r in results),
        full=any(r.full for r in results),
        more_to_scan=any(r.more_to_scan for r in results),
        resume={pool: progress for r in results for pool, progress in r.resume.items()},
    )


def check_pin(job_id: UUID, worker_id: UUID | None) -> None:
    """Refuse a worker that the job could never run on; the execution waits for one that is only busy or away."""
    if worker_id is None:
        return
    pool = Worker.objects.filter(id=worker_id).values_list("pool", flat=True).first()
    if pool is None:
        raise InvalidInput("worker_id", "There is no such worker; GET /api/v1/workers lists them.")
    # Locked: the queue could move to another pool before the execution is committed.
    queues = Queue.objects.select_for_update(no_key=True, of=("self",)).filter(versions__current_of=job_id)
    wanted = queues.values_list("pool", flat=True).first()
    if pool != wanted:
        raise InvalidInput("worker_id", f"The worker serves the pool {pool}, and the job's queue the pool {wanted}.")


def _place_pool(pool: str, bounds: PassLimits, resume: ScanProgress | None) -> PlaceResult:
    with (
        transaction.atomic(),
        with_timeouts(
            statement_seconds=10, durable=False, avoid_bitmap_scans=True, lock_name=placement_lock_name(pool)
        ) as ours,
    ):
        unfinished = {} if resume is None else {pool: resume}
        if not ours:
            return PlaceResult(contended=True, resume=unfinished)
        try:
            plan = PoolPlan(pool, bounds, lock=_lock_limited_owners, unpark_owners=_unpark_owners)
            plan.run(resume)
        except _LimitsContended:
            return PlaceResult(contended=True, resume=unfinished)
        parked = parking.park(plan.to_park)
        placed = transitions.place(
            [Placement(a.execution_id, a.worker_id, a.incarnation) for a in plan.result.placements]
        )
        parking.unpark(plan.jobs_to_unpark())
    progress = plan.progress
    return PlaceResult(
        tuple(placed),
        held=plan.held,
        more=_may_place_more(plan, placed=len(placed), parked=parked),
        full=plan.is_full,
        more_to_scan=progress.reached is not None and not plan.is_full,
        resume={pool: progress} if progress else {},
    )


def _may_place_more(plan: PoolPlan, *, placed: int, parked: int) -> bool:
    if plan.stopped:
        return bool(placed or parked)
    # Nothing of what this pass unparked fits; something that is still parked may.
    return plan.owners_unparked and not placed


def _lock_limited_owners() -> Mapping[int, LimitedOwner]:
    locked = lock_limited_owners()
    if locked is None:
        raise _LimitsContended
    return locked


def _unpark_owners() -> int:
    # Without their lock: executions of an owner misjudged as below the limit are parked again, and the next pass finds
    # an owner misjudged as full.
    return parking.unpark_owners(read_limited_owners())
