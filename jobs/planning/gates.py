"""Every gate between an execution and a worker, with what it asks for and what there is: a plan's reasons at length."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from jobs.planning.fleet import Fleet, Shape
from jobs.planning.shelf import Free
from jobs.planning.values import Demand, Gate

# The nearest ones: nobody reads a list of thousands.
MAX_WORKERS_SHOWN = 50


def gates_of(demand: Demand, shape: Shape, fleet: Fleet, active: Mapping[UUID | int, int]) -> list[Gate]:
    """As things stand when its turn has come: after whatever goes before it."""
    capable = fleet.capable(demand, shape)
    pinned = _pin_gates(demand, fleet)
    return [
        _limit_gate("queue_limit", "queue", demand.queue_id, demand.queue_room, active),
        _limit_gate("job_limit", "job", demand.job_id, demand.job_room, active),
        _limit_gate("owner_limit", "owner", demand.owner_id, demand.owner_room, active),
        *pinned,
        # What a worker that is not there offers is not known.
        *([_capability_gate(demand, shape, fleet, capable)] if all(gate.open for gate in pinned) else []),
        *_worker_gates(shape, fleet, capable),
    ]


def _limit_gate(
    name: str, what: str, own: UUID | int | None, room: int | None, active: Mapping[UUID | int, int]
) -> Gate:
    if room is None or own is None:
        return Gate(name, True, f"Its {what} has no limit.")
    left = room - active.get(own, 0)
    if left > 0:
        return Gate(name, True, f"{left} more of its {what} may be active.", 1, left)
    return Gate(name, False, f"No more of its {what} may be active now, with what goes before it.", 1, max(0, left))


def _pin_gates(demand: Demand, fleet: Fleet) -> list[Gate]:
    if demand.worker_id is None:
        return []
    found = any(worker.supply.worker_id == demand.worker_id for worker in fleet.workers)
    words = "is online" if found else "is not online in the pool of its queue"
    return [
        Gate("worker", found, f"The worker that it is to run on {words}.", demand.worker_id, None, [demand.worker_id])
    ]


def _capability_gate(demand: Demand, shape: Shape, fleet: Fleet, capable: list[Free]) -> Gate:
    wanted = sorted(shape.capabilities)
    words = f"{len(capable)} of {len(fleet.workers)} workers offer {', '.join(wanted) or 'what it asks for'}"
    if demand.worker_id is not None:
        words = f"The worker that it is to run on {'offers' if capable else 'does not offer'} {', '.join(wanted)}"
    return Gate("capability", bool(capable), f"{words}.", wanted, len(capable))


def _worker_gates(shape: Shape, fleet: Fleet, capable: list[Free]) -> list[Gate]:
    def lacking(worker: Free) -> int:
        return sum(have < need for have, need in zip(worker.amounts, shape.needs, strict=True))

    gates = []
    for worker in sorted(capable, key=lambda w: (lacking(w), -w.key[0], w.number))[:MAX_WORKERS_SHOWN]:
        name, own = worker.supply.shown, worker.supply.worker_id
        if (kept := fleet.kept_for(worker)) is not None:
            words = f"{name} is kept for an execution that has waited longer."
            gates.append(Gate("reservation", False, words, limit=own, holders=[kept]))
        for resource, amount, need, have in zip(fleet.names, shape.amounts, shape.needs, worker.amounts, strict=True):
            # One that was given too much, as when its capacity shrank, gets nothing more, whatever that needs.
            if amount > 0 or have < need:
                words = f"{name} has {have:g} {resource} free, and it needs {amount:g}."
                gates.append(Gate(f"resource.{resource}", have >= need, words, amount, have, [own]))
    return gates
