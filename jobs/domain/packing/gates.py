"""The gates between an execution and a worker, each with demand and supply: a plan's reasons in detail."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.domain.packing.capacity_index import WorkerCapacity
from jobs.domain.packing.packer import DemandShape, Packer
from jobs.domain.packing.values import Demand, Gate, LimitKey

# The workers closest to fitting.
MAX_WORKERS_LISTED = 50


def build_gates(demand: Demand, shape: DemandShape, packer: Packer, active: Mapping[LimitKey, int]) -> list[Gate]:
    """Return all gates at the demand's turn, after the demands before it were placed."""
    capable = packer.capable_workers(demand, shape)
    pinned = _build_pin_gates(demand, packer)
    return [
        _build_limit_gate("queue_limit", "queue", demand.queue_id, demand.queue_capacity, active),
        _build_limit_gate("job_limit", "job", demand.job_id, demand.job_capacity, active),
        _build_limit_gate("owner_limit", "owner", demand.owner_id, demand.owner_capacity, active),
        *pinned,
        # The capabilities of an absent worker are unknown.
        *([_build_capability_gate(demand, shape, packer, capable)] if all(gate.open for gate in pinned) else []),
        *_build_worker_gates(shape, packer, capable),
    ]


def _build_limit_gate(
    name: str, kind: str, id_: LimitKey, capacity: int | None, active: Mapping[LimitKey, int]
) -> Gate:
    if capacity is None or id_ is None:
        return Gate(name, True, f"Its {kind} has no limit.")
    left = capacity - active.get(id_, 0)
    if left > 0:
        return Gate(name, True, f"{left} more executions of its {kind} may be active.", 1, left)
    return Gate(name, False, f"Its {kind} is at its limit, with the executions before it.", 1, max(0, left))


def _build_pin_gates(demand: Demand, packer: Packer) -> list[Gate]:
    if demand.worker_id is None:
        return []
    found = any(worker.supply.worker_id == demand.worker_id for worker in packer.workers)
    status = "is online" if found else "is not online in the pool of its queue"
    text = f"The worker that it is pinned to {status}."
    return [Gate("worker", found, text, demand.worker_id, None, [demand.worker_id])]


def _build_capability_gate(demand: Demand, shape: DemandShape, packer: Packer, capable: list[WorkerCapacity]) -> Gate:
    required = sorted(shape.capabilities)
    text = f"{len(capable)} of {len(packer.workers)} workers offer {', '.join(required) or 'what it asks for'}"
    if demand.worker_id is not None:
        text = f"The worker that it is pinned to {'offers' if capable else 'does not offer'} {', '.join(required)}"
    return Gate("capability", bool(capable), f"{text}.", required, len(capable))


def _build_worker_gates(shape: DemandShape, packer: Packer, capable: list[WorkerCapacity]) -> list[Gate]:
    def count_shortfalls(worker: WorkerCapacity) -> int:
        return sum(have < need for have, need in zip(worker.amounts, shape.needs, strict=True))

    gates = []
    for worker in sorted(capable, key=lambda w: (count_shortfalls(w), -w.key[0], w.number))[:MAX_WORKERS_LISTED]:
        name, worker_id = worker.supply.label, worker.supply.worker_id
        if (reserved_for := packer.reserved_for(worker)) is not None:
            fits = worker.fits(shape.needs)
            text = f"{name} is reserved for an execution that has waited longer{', with enough capacity left' * fits}."
            gates.append(Gate("reservation", fits, text, limit=worker_id, holders=[reserved_for]))
        for resource, amount, need, have in zip(packer.names, shape.amounts, shape.needs, worker.free, strict=True):
            # An overcommitted worker, whose capacity has shrunk, accepts nothing, not even a demand for zero.
            if amount > 0 or have < need:
                text = f"{name} has {have:g} {resource} free, and it needs {amount:g}."
                gates.append(Gate(f"resource.{resource}", have >= need, text, amount, have, [worker_id]))
    return gates
