"""One placement pass: demands in the given order, each on the best-fitting worker.

Invariant: a plan never exceeds a worker's free capacity or the limit of a queue, a job or an owner, and every demand
that is not placed has a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from uuid import UUID

from jobs.domain.packing.capacity_index import WorkerCapacity
from jobs.domain.packing.gates import build_gates
from jobs.domain.packing.packer import DemandShape, Packer
from jobs.domain.packing.values import Demand, LimitKey, Plan, PlannedPlacement, Supply

# At most one worker in this many is reserved for overdue demands, but always one.
WORKERS_PER_RESERVATION = 10
MAX_RESERVATIONS = 50
OWNER_AT_LIMIT = "its owner is at their limit"


def plan_placements(
    ready: Sequence[Demand], workers: Sequence[Supply], *, explain: Collection[UUID] = frozenset()
) -> Plan:
    """Plan placements; for the executions in `explain` also return every gate at their turn."""
    packer = Packer(ready, workers)
    most_reserved = max(1, min(len(workers) // WORKERS_PER_RESERVATION, MAX_RESERVATIONS))
    result, active = Plan(), Counter[LimitKey]()
    tried: dict[DemandShape, Demand] = {}
    for demand in ready:
        shape = packer.shape_of(demand)
        if demand.execution_id in explain:
            result.gates[demand.execution_id] = build_gates(demand, shape, packer, active)
        reason = _find_reached_limit(demand, active)
        worker = packer.find_worker(demand, shape) if reason is None else None
        if worker is not None:
            packer.allocate(worker, shape)
            _count_active(demand, active)
            result.placements.append(
                PlannedPlacement(demand.execution_id, worker.supply.worker_id, worker.supply.incarnation)
            )  # fmt: skip
            continue
        if reason is None:
            may_reserve = demand.overdue and len(result.reserved) < most_reserved
            reserved = packer.reserve_worker(demand, shape) if may_reserve else None
            reason = _explain_no_capacity(demand, shape, packer, reserved)
            if reserved is not None:
                result.reserved[reserved.supply.worker_id] = demand.execution_id
            elif shape not in tried or demand.overdue:
                tried[shape] = demand
        result.held[demand.execution_id] = reason
    result.tried.extend(tried.values())
    return result


def _find_reached_limit(demand: Demand, active: Counter[LimitKey]) -> str | None:
    if demand.queue_capacity is not None and active[demand.queue_id] >= demand.queue_capacity:
        return "its queue is at its limit"
    if demand.job_capacity is not None and active[demand.job_id] >= demand.job_capacity:
        return "its job is at its limit"
    if demand.owner_capacity is not None and active[demand.owner_id] >= demand.owner_capacity:
        return OWNER_AT_LIMIT
    return None


def _count_active(demand: Demand, active: Counter[LimitKey]) -> None:
    if demand.queue_capacity is not None:
        active[demand.queue_id] += 1
    if demand.job_capacity is not None:
        active[demand.job_id] += 1
    if demand.owner_capacity is not None:
        active[demand.owner_id] += 1


def _explain_no_capacity(demand: Demand, shape: DemandShape, packer: Packer, reserved: WorkerCapacity | None) -> str:
    if reserved is not None:
        return f"{reserved.supply.label} is reserved for it until it has enough free"
    if demand.worker_id is not None:
        return "the worker that it is pinned to is not online, cannot run it or has no capacity"
    if shape.indexes:
        return "no worker has enough free " + ", ".join(
            name for name, need in zip(packer.names, shape.needs, strict=True) if need > 0
        )
    return f"no free worker offers {', '.join(sorted(shape.capabilities)) or 'anything'}"
