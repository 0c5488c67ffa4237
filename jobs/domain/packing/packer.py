"""The state of a placement pass: workers indexed by capabilities, demands grouped by shape.

Invariant: capacity only shrinks during a pass, so a shape that found no worker finds none later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from operator import mul, sub
from uuid import UUID

from jobs.domain.packing.capacity_index import EPSILON, CapacityIndex, WorkerCapacity
from jobs.domain.packing.values import BUILT_IN_RESOURCES, Demand, Supply


class DemandShape:
    """The amounts and capabilities that many demands share."""

    __slots__ = ("amounts", "capabilities", "indexes", "needs", "shortfalls", "unplaceable", "weight")

    def __init__(
        self, amounts: tuple[float, ...], capabilities: frozenset[str], weight: float, indexes: list[CapacityIndex]
    ) -> None:
        self.amounts = amounts
        self.needs = tuple(amount - EPSILON for amount in amounts)
        self.capabilities = capabilities
        self.weight = weight
        self.indexes = indexes
        self.unplaceable = False
        self.shortfalls: list[tuple[float, int]] | None = None


class Packer:
    def __init__(self, ready: Sequence[Demand], workers: Sequence[Supply]) -> None:
        found = {name for d in ready for name in d.resources} | {name for w in workers for name in w.resources}
        self._custom_resources = tuple(sorted(found - set(BUILT_IN_RESOURCES)))
        self.names = (*BUILT_IN_RESOURCES, *self._custom_resources)
        ordered = sorted(workers, key=lambda worker: worker.worker_id.int)
        rows = [(w.slots, w.cpu, w.memory_mb, w.disk_mb, *self._counted(w.resources)) for w in ordered]
        now = [max(column) for column in zip(*rows, strict=True)] or [0] * len(self.names)
        idle = [max((worker.total.get(name, 0) for worker in ordered), default=0) for name in self.names]
        # Shares of the largest worker, so that CPUs and megabytes can be added.
        self.weights = [1 / amount if amount > 0 else 0.0 for amount in map(max, now, idle)]
        self.workers = [
            WorkerCapacity(worker, n, row, self.weights)
            for n, (worker, row) in enumerate(zip(ordered, rows, strict=True))
        ]
        self._by_id = {worker.supply.worker_id: worker for worker in self.workers}
        # Only requested capabilities distinguish workers.
        requested = frozenset(name for names in {tuple(d.capabilities) for d in ready} for name in names)
        offers = {names: requested & frozenset(names) for names in {tuple(w.capabilities) for w in ordered}}
        self._offers = [offers[tuple(worker.capabilities)] for worker in ordered]
        by_offer: dict[frozenset[str], list[WorkerCapacity]] = {offer: [] for offer in self._offers}
        for worker, offer in zip(self.workers, self._offers, strict=True):
            if worker.amounts[0] >= 1:
                by_offer[offer].append(worker)
        self._indexes = {offer: CapacityIndex(members) for offer, members in by_offer.items()}
        self._shapes: dict[object, DemandShape] = {}
        self._reserved: dict[UUID, UUID] = {}

    def shape_of(self, demand: Demand) -> DemandShape:
        key = demand.shape
        shape = self._shapes.get(key)
        if shape is None:
            amounts = (1, demand.cpu, demand.memory_mb, demand.disk_mb, *self._counted(demand.resources))
            capabilities = frozenset(demand.capabilities)
            indexes = [index for offer, index in self._indexes.items() if capabilities <= offer]
            shape = DemandShape(amounts, capabilities, sum(map(mul, amounts, self.weights)), indexes)
            self._shapes[key] = shape
        return shape

    def find_worker(self, demand: Demand, shape: DemandShape) -> WorkerCapacity | None:
        if shape.unplaceable:
            return None
        found = self._fit_pinned(demand.worker_id, shape) if demand.worker_id is not None else self._fit_best(shape)
        shape.unplaceable = found is None
        return found

    def allocate(self, worker: WorkerCapacity, shape: DemandShape) -> None:
        self._set_amounts(worker, list(map(sub, worker.amounts, shape.amounts)))

    def capable_workers(self, demand: Demand, shape: DemandShape) -> list[WorkerCapacity]:
        """Return every worker that could run the demand if it had the capacity."""
        return [
            worker
            for worker, offer in zip(self.workers, self._offers, strict=True)
            if shape.capabilities <= offer and demand.worker_id in (None, worker.supply.worker_id)
        ]

    def reserve_worker(self, demand: Demand, shape: DemandShape) -> WorkerCapacity | None:
        """Reserve the worker with the smallest shortfall among those that are large enough when idle.

        Other demands get only its surplus: nothing of the scarce resources, whose free amount then can only grow.
        """
        if shape.shortfalls is None:
            able = [worker for worker in self.capable_workers(demand, shape) if self._is_large_enough(worker, shape)]
            shape.shortfalls = [(self._measure_shortfall(worker, shape), worker.number) for worker in able]
            heapify(shape.shortfalls)
        while shape.shortfalls:
            shortfall, number = shape.shortfalls[0]
            worker = self.workers[number]
            now = self._measure_shortfall(worker, shape)
            if worker.supply.worker_id in self._reserved:
                heappop(shape.shortfalls)
            elif now > shortfall:
                # Shortfalls only grow during a pass, so updating the top keeps the heap correct.
                heapreplace(shape.shortfalls, (now, number))
            else:
                return self._reserve(worker, demand, shape)
        return None

    def reserved_for(self, worker: WorkerCapacity) -> UUID | None:
        return self._reserved.get(worker.supply.worker_id)

    def _is_large_enough(self, worker: WorkerCapacity, shape: DemandShape) -> bool:
        total = worker.supply.total
        return all(
            need <= 0 or total.get(name, 0) >= need for name, need in zip(self.names, shape.needs, strict=True)
        )  # fmt: skip

    def _reserve(self, worker: WorkerCapacity, demand: Demand, shape: DemandShape) -> WorkerCapacity:
        free = worker.amounts
        # An overcommitted amount stays negative.
        surplus = [min(have, max(0, have - need)) for have, need in zip(free, shape.amounts, strict=True)]
        self._set_amounts(worker, surplus)
        worker.reserved = list(map(sub, free, surplus))
        self._reserved[worker.supply.worker_id] = demand.execution_id
        return worker

    def _set_amounts(self, worker: WorkerCapacity, amounts: list[float]) -> None:
        index = self._indexes[self._offers[worker.number]]
        if worker.amounts[0] >= 1:
            index.remove(worker)
        worker.amounts = amounts
        worker.update_key(self.weights)
        if amounts[0] >= 1:
            index.add(worker)

    def _fit_pinned(self, worker_id: UUID, shape: DemandShape) -> WorkerCapacity | None:
        worker = self._by_id.get(worker_id)
        if worker is None or not shape.capabilities <= self._offers[worker.number]:
            return None
        return worker if worker.fits(shape.needs) else None

    def _fit_best(self, shape: DemandShape) -> WorkerCapacity | None:
        found = [best for index in shape.indexes if (best := index.best(shape.needs, shape.weight)) is not None]
        return min(found, key=lambda worker: worker.key, default=None)

    def _measure_shortfall(self, worker: WorkerCapacity, shape: DemandShape) -> float:
        rows = zip(shape.amounts, worker.amounts, self.weights, strict=True)
        return sum(max(0.0, need - have) * weight for need, have, weight in rows)

    def _counted(self, resources: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(resources.get(name, 0) for name in self._custom_resources) if self._custom_resources else ()
