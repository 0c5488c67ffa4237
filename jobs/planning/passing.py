"""One pass over what waits: first come (in the order given), best fit.

Invariant: a plan never gives a worker more than it has free, never lets more of a queue, a job or an owner be active
than may be, and what stays behind says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from uuid import UUID

from jobs.planning.fleet import Fleet, Shape
from jobs.planning.gates import gates_of
from jobs.planning.shelf import Free
from jobs.planning.values import Demand, Plan, Planned, Supply

# At most one worker in so many is kept free for work that waits too long, and always one.
WORKERS_PER_RESERVATION = 10
MAX_RESERVATIONS = 50
OWNER_FULL = "its owner is at their limit"


def plan(ready: Sequence[Demand], workers: Sequence[Supply], *, asked: Collection[UUID] = frozenset()) -> Plan:
    """What goes where. Of the executions in `asked` also every gate, as it stood when their turn came."""
    fleet = Fleet(ready, workers)
    most_reserved = max(1, min(len(workers) // WORKERS_PER_RESERVATION, MAX_RESERVATIONS))
    result, active = Plan(), Counter[UUID | int]()
    for demand in ready:
        shape = fleet.shape_of(demand)
        if demand.execution_id in asked:
            result.gates[demand.execution_id] = gates_of(demand, shape, fleet, active)
        reason = _at_a_limit(demand, active)
        worker = fleet.find(demand, shape) if reason is None else None
        if worker is not None:
            fleet.take(worker, shape)
            _count(demand, active)
            result.assignments.append(
                Planned(demand.execution_id, worker.supply.worker_id, worker.supply.incarnation)
            )  # fmt: skip
            continue
        if reason is None:
            kept = fleet.keep(demand, shape) if demand.overdue and len(result.reserved) < most_reserved else None
            reason = _no_room(demand, shape, fleet, kept)
            if kept is not None:
                result.reserved[kept.supply.worker_id] = demand.execution_id
        result.held[demand.execution_id] = reason
    return result


def _at_a_limit(demand: Demand, active: Counter[UUID | int]) -> str | None:
    if demand.queue_room is not None and demand.queue_id is not None and active[demand.queue_id] >= demand.queue_room:
        return "its queue is at its limit"
    if demand.job_room is not None and demand.job_id is not None and active[demand.job_id] >= demand.job_room:
        return "its job is at its limit"
    if demand.owner_room is not None and demand.owner_id is not None and active[demand.owner_id] >= demand.owner_room:
        return OWNER_FULL
    return None


def _count(demand: Demand, active: Counter[UUID | int]) -> None:
    if demand.queue_room is not None and demand.queue_id is not None:
        active[demand.queue_id] += 1
    if demand.job_room is not None and demand.job_id is not None:
        active[demand.job_id] += 1
    if demand.owner_room is not None and demand.owner_id is not None:
        active[demand.owner_id] += 1


def _no_room(demand: Demand, shape: Shape, fleet: Fleet, kept: Free | None) -> str:
    if kept is not None:
        return f"{kept.supply.shown} is kept for it until it has enough free"
    if demand.worker_id is not None:
        return "the worker that it is to run on is not online, cannot run it or has no room"
    if shape.shelves:
        return "no worker has enough free " + ", ".join(
            name for name, need in zip(fleet.names, shape.needs, strict=True) if need > 0
        )
    return f"no free worker offers {', '.join(sorted(shape.capabilities)) or 'anything'}"
