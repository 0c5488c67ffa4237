"""Which ready execution goes to which worker: a pure function of what waits and what is free.

Invariant: a plan never gives a worker more than it has free, and what stays behind says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Demand:
    execution_id: UUID
    cpu: float
    memory_mb: int
    disk_mb: int
    capabilities: Sequence[str]


@dataclass(frozen=True, slots=True)
class Supply:
    worker_id: UUID
    incarnation: int
    capabilities: Sequence[str]
    slots: int
    cpu: float
    memory_mb: int
    disk_mb: int


@dataclass(slots=True)
class _Free:
    supply: Supply
    slots: int
    cpu: float
    memory_mb: int
    disk_mb: int
    capabilities: frozenset[str]

    def fits(self, demand: Demand) -> bool:
        return (
            self.slots >= 1
            and self.cpu + 1e-9 >= demand.cpu
            and self.memory_mb >= demand.memory_mb
            and self.disk_mb >= demand.disk_mb
        )

    def take(self, demand: Demand) -> None:
        self.slots -= 1
        self.cpu -= demand.cpu
        self.memory_mb -= demand.memory_mb
        self.disk_mb -= demand.disk_mb

    def left_over(self, demand: Demand) -> tuple[float, int, int, UUID]:
        return (
            self.cpu - demand.cpu,
            self.memory_mb - demand.memory_mb,
            self.disk_mb - demand.disk_mb,
            self.supply.worker_id,
        )


@dataclass(frozen=True, slots=True)
class Planned:
    execution_id: UUID
    worker_id: UUID
    incarnation: int


@dataclass(frozen=True, slots=True)
class Plan:
    assignments: list[Planned] = field(default_factory=list)
    held: dict[UUID, str] = field(default_factory=dict)


def plan(ready: Sequence[Demand], workers: Sequence[Supply]) -> Plan:
    """First come (in the order given), best fit: the worker that has the least left over afterwards."""
    free = [_Free(w, w.slots, w.cpu, w.memory_mb, w.disk_mb, frozenset(w.capabilities)) for w in workers]
    result = Plan()
    for demand in ready:
        wanted = frozenset(demand.capabilities)
        capable = [worker for worker in free if wanted <= worker.capabilities]
        fitting = [worker for worker in capable if worker.fits(demand)]
        if fitting:
            best = min(fitting, key=lambda worker: worker.left_over(demand))
            best.take(demand)
            result.assignments.append(Planned(demand.execution_id, best.supply.worker_id, best.supply.incarnation))
        elif capable:
            result.held[demand.execution_id] = "no worker has enough free slots, cpu, memory and disk"
        else:
            result.held[demand.execution_id] = f"no free worker offers {', '.join(sorted(wanted))}"
    return result
