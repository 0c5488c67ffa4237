"""Gives ready executions to workers.

One beat at a time places for a pool, whichever comes: the pool's lock is taken alone, before anything is read, so that
what is read is what everybody before has committed, and capacity and limits cannot be given away twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection, transaction

from jobs import conf, sql
from jobs.models import Queue
from jobs.planning import Demand, Plan, Supply, plan
from jobs.services import transitions
from jobs.services.database import bounded
from jobs.services.transitions import Assignment


@dataclass(frozen=True, slots=True)
class PlaceResult:
    placed: int = 0
    held: int = 0
    contended: bool = False  # another beat was placing for a pool: look again soon
    more: bool = False  # a full batch, of which some was placed: there may be more to place right now


def place_ready_executions(*, limit: int = conf.PLACE_BATCH_EXECUTIONS) -> PlaceResult:
    """One batch for every pool, each in a transaction of its own."""
    results = [
        _place_pool(pool, limit) for pool in Queue.objects.order_by("pool").values_list("pool", flat=True).distinct()
    ]
    return PlaceResult(
        placed=sum(r.placed for r in results),
        held=sum(r.held for r in results),
        contended=any(r.contended for r in results),
        more=any(r.more for r in results),
    )


def _place_pool(pool: str, limit: int) -> PlaceResult:
    with transaction.atomic(), bounded(statement_seconds=10):
        if not _lock_pool(pool):
            return PlaceResult(contended=True)
        made = _plan_pool(pool, limit)
        placed = transitions.place([Assignment(a.execution_id, a.worker_id, a.incarnation) for a in made.assignments])
    full = len(made.assignments) + len(made.held) >= limit
    return PlaceResult(placed=placed, held=len(made.held), more=full and placed > 0)


def _plan_pool(pool: str, limit: int) -> Plan:
    ready = sql.fetch("ready_executions", {"pool": pool, "limit": limit}, Demand)
    if not ready:
        return Plan()
    return plan(ready, sql.fetch("free_capacity", {"pool": pool}, Supply))


def _lock_pool(pool: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [f"punctual.place.{pool}"])
        (locked,) = cursor.fetchone()
    return bool(locked)
