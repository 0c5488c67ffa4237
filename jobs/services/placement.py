"""Gives ready executions to workers.

One beat at a time places for a pool, whichever comes: the pool's lock is taken alone, before anything is read, so that
what is read is what everybody before has committed, and capacity and limits cannot be given away twice.

A placement does not wait for the disk: the claim that makes something of it does, and Postgres writes in order, so no
claim outlives a crash that its placement did not. What a crash undoes is ready again and is placed again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import DatabaseError, transaction

from jobs import conf
from jobs.errors import InvalidInput
from jobs.messages import Publication
from jobs.models import Queue, Worker
from jobs.planning import OWNER_FULL, Plan, Supply, plan
from jobs.services import transitions
from jobs.services.database import bounded
from jobs.services.demands import NOBODY, read_ready, read_workers
from jobs.services.locking import placement_lock
from jobs.services.owner_limits import lock_limited
from jobs.services.transitions import Assignment

FIRST_LOOK_EXECUTIONS = 16

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlaceResult:
    publications: tuple[Publication, ...] = ()  # what was placed, and is to be sent now
    held: int = 0
    contended: bool = False  # another beat was placing for a pool: look again soon
    more: bool = False  # a full batch, of which some was placed: there may be more to place right now
    full: bool = False  # a pool has no room left: more can be placed only when something ends

    @property
    def placed(self) -> int:
        return len(self.publications)


class _LimitsContended(Exception):
    """Another pass is placing for owners who have a limit."""


def read_pools() -> list[str]:
    return list(Queue.objects.order_by("pool").values_list("pool", flat=True).distinct())


def place_ready_executions(
    *, limit: int = conf.PLACE_BATCH_EXECUTIONS, pools: Sequence[str] | None = None
) -> PlaceResult:
    """One batch for every pool, each in a transaction of its own. `pools`: as the caller has read them a moment ago."""
    results: list[PlaceResult] = []
    failure: DatabaseError | None = None
    for pool in read_pools() if pools is None else pools:
        try:
            results.append(_place_pool(pool, limit))
        except DatabaseError as error:
            logger.exception("Nothing could be placed in the pool %s", pool)
            failure = error
    if failure is not None and not any(result.publications for result in results):
        raise failure
    return PlaceResult(
        publications=tuple(publication for r in results for publication in r.publications),
        held=sum(r.held for r in results),
        contended=any(r.contended for r in results),
        more=any(r.more for r in results),
        full=any(r.full for r in results),
    )


def check_pin(job_id: UUID, worker_id: UUID | None) -> None:
    """Refuses a worker that the job could never run on; one that is only busy or away is waited for."""
    if worker_id is None:
        return
    pool = Worker.objects.filter(id=worker_id).values_list("pool", flat=True).first()
    if pool is None:
        raise InvalidInput("worker_id", "There is no such worker; GET /api/v1/workers lists them.")
    # Locked: the queue could be moved to another pool before the execution is there to be seen.
    queues = Queue.objects.select_for_update(no_key=True, of=("self",)).filter(versions__current_of=job_id)
    wanted = queues.values_list("pool", flat=True).first()
    if pool != wanted:
        raise InvalidInput("worker_id", f"The worker serves the pool {pool}, and the job's queue the pool {wanted}.")


def _place_pool(pool: str, limit: int) -> PlaceResult:
    with (
        transaction.atomic(),
        bounded(statement_seconds=10, durable=False, only_with=placement_lock(pool)) as ours,
    ):
        if not ours:
            return PlaceResult(contended=True)
        try:
            made, room = _plan_pool(pool, limit)
        except _LimitsContended:
            return PlaceResult(contended=True)
        placed = transitions.place([Assignment(a.execution_id, a.worker_id, a.incarnation) for a in made.assignments])
    # Those of an owner who is full now are left out of the next batch, and what they hid is in it.
    whole_batch = len(made.assignments) + len(made.held) >= limit or OWNER_FULL in made.held.values()
    return PlaceResult(
        tuple(placed), held=len(made.held), more=whole_batch and bool(placed), full=len(made.assignments) >= room
    )


def _plan_pool(pool: str, limit: int) -> tuple[Plan, int]:
    """Looks at little of what waits, and at more only while there is room for it or some of it does not fit.

    Also how many slots were free.
    """
    look = min(limit, FIRST_LOOK_EXECUTIONS)
    workers: Sequence[Supply] | None = None
    free, full_ones = 1, False
    limited = NOBODY
    while True:
        ready = read_ready(pool, look, limited)
        if limited is NOBODY and any(demand.owner_room is not None for demand in ready):
            locked = lock_limited()
            if locked is None:
                raise _LimitsContended
            limited = locked
            # Once more: now nobody else places for them.
            ready = read_ready(pool, look, limited)
        if not ready:
            return Plan(), free
        # A worker without a free slot can still be kept for somebody.
        overdue = any(demand.overdue for demand in ready)
        if workers is None or overdue > full_ones:
            full_ones = overdue
            workers = read_workers(pool, full_ones=full_ones)
            # Everything needs some of these.
            free = sum(max(0, worker.slots) for worker in workers if worker.cpu > 0 and worker.memory_mb > 0)
        made = plan(ready, workers)
        if look == limit or len(ready) < look or len(made.assignments) >= free:
            return made, free
        look = min(limit, max(8 * look, 2 * free))
