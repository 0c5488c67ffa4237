"""The workers of a pass, shelved by what they offer, and the demands of a pass, grouped by what they ask for.

Invariant: during a pass room only shrinks, so what has found no place once finds none later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from operator import mul, sub
from uuid import UUID

from jobs.planning.shelf import EPSILON, Free, Shelf
from jobs.planning.values import BUILT_IN, Demand, Supply


class Shape:
    """What many demands have in common: how much of everything, and of which workers."""

    __slots__ = ("amounts", "capabilities", "hopeless", "lacks", "needs", "shelves", "weight")

    def __init__(
        self, amounts: tuple[float, ...], capabilities: frozenset[str], weight: float, shelves: list[Shelf]
    ) -> None:
        self.amounts = amounts
        self.needs = tuple(amount - EPSILON for amount in amounts)
        self.capabilities = capabilities
        self.weight = weight
        self.shelves = shelves
        self.hopeless = False
        self.lacks: list[tuple[float, int]] | None = None


class Fleet:
    def __init__(self, ready: Sequence[Demand], workers: Sequence[Supply]) -> None:
        found = {name for d in ready for name in d.resources} | {name for w in workers for name in w.resources}
        self._own = tuple(sorted(found - set(BUILT_IN)))
        self.names = (*BUILT_IN, *self._own)
        ordered = sorted(workers, key=lambda worker: worker.worker_id.int)
        rows = [(w.slots, w.cpu, w.memory_mb, w.disk_mb, *self._counted(w.resources)) for w in ordered]
        now = [max(column) for column in zip(*rows, strict=True)] or [0] * len(self.names)
        idle = [max((worker.whole.get(name, 0) for worker in ordered), default=0) for name in self.names]
        # Shares of the largest worker: cpus and megabytes can then be added up.
        self.weights = [1 / amount if amount > 0 else 0.0 for amount in map(max, now, idle)]
        self.workers = [
            Free(worker, n, row, self.weights) for n, (worker, row) in enumerate(zip(ordered, rows, strict=True))
        ]
        self._by_id = {worker.supply.worker_id: worker for worker in self.workers}
        # Only what somebody asks for tells workers apart.
        asked = frozenset(name for wanted in {tuple(d.capabilities) for d in ready} for name in wanted)
        offers = {names: asked & frozenset(names) for names in {tuple(w.capabilities) for w in ordered}}
        self._offers = [offers[tuple(worker.capabilities)] for worker in ordered]
        by_offer: dict[frozenset[str], list[Free]] = {offer: [] for offer in self._offers}
        for worker, offer in zip(self.workers, self._offers, strict=True):
            if worker.amounts[0] >= 1:
                by_offer[offer].append(worker)
        self._shelves = {offer: Shelf(members) for offer, members in by_offer.items()}
        self._shapes: dict[object, Shape] = {}
        self._kept: dict[UUID, UUID] = {}

    def shape_of(self, demand: Demand) -> Shape:
        wanted = tuple(demand.capabilities)
        key = (demand.cpu, demand.memory_mb, demand.disk_mb, wanted, tuple(demand.resources.items()), demand.worker_id)
        shape = self._shapes.get(key)
        if shape is None:
            amounts = (1, demand.cpu, demand.memory_mb, demand.disk_mb, *self._counted(demand.resources))
            capabilities = frozenset(wanted)
            shelves = [shelf for offer, shelf in self._shelves.items() if capabilities <= offer]
            shape = Shape(amounts, capabilities, sum(map(mul, amounts, self.weights)), shelves)
            self._shapes[key] = shape
        return shape

    def find(self, demand: Demand, shape: Shape) -> Free | None:
        if shape.hopeless:
            return None
        found = self._pinned(demand.worker_id, shape) if demand.worker_id is not None else self._best(shape)
        shape.hopeless = found is None
        return found

    def take(self, worker: Free, shape: Shape) -> None:
        shelf = self._shelves[self._offers[worker.number]]
        shelf.remove(worker)
        worker.amounts = list(map(sub, worker.amounts, shape.amounts))
        worker.weigh(self.weights)
        if worker.amounts[0] >= 1:
            shelf.add(worker)

    def capable(self, demand: Demand, shape: Shape) -> list[Free]:
        """Every worker that it might run on if there were room."""
        return [
            worker
            for worker, offer in zip(self.workers, self._offers, strict=True)
            if shape.capabilities <= offer and demand.worker_id in (None, worker.supply.worker_id)
        ]

    def keep(self, demand: Demand, shape: Shape) -> Free | None:
        """The worker that lacks the least and has enough when it is idle gets nothing else: its room can only grow."""
        if shape.lacks is None:
            able = [worker for worker in self.capable(demand, shape) if self._is_large_enough(worker, shape)]
            shape.lacks = [(self._lack(worker, shape), worker.number) for worker in able]
            heapify(shape.lacks)
        while shape.lacks:
            lack, number = shape.lacks[0]
            worker = self.workers[number]
            now = self._lack(worker, shape)
            if worker.supply.worker_id in self._kept:
                heappop(shape.lacks)
            elif now > lack:
                # It was given something since; what lacks only grows, so the least of all comes to the top like this.
                heapreplace(shape.lacks, (now, number))
            else:
                return self._take_away(worker, demand)
        return None

    def kept_for(self, worker: Free) -> UUID | None:
        return self._kept.get(worker.supply.worker_id)

    def _is_large_enough(self, worker: Free, shape: Shape) -> bool:
        whole = worker.supply.whole
        return all(
            need <= 0 or whole.get(name, 0) >= need for name, need in zip(self.names, shape.needs, strict=True)
        )  # fmt: skip

    def _take_away(self, worker: Free, demand: Demand) -> Free:
        if worker.amounts[0] >= 1:
            self._shelves[self._offers[worker.number]].remove(worker)
        self._kept[worker.supply.worker_id] = demand.execution_id
        return worker

    def _pinned(self, worker_id: UUID, shape: Shape) -> Free | None:
        worker = self._by_id.get(worker_id)
        if worker is None or worker_id in self._kept or not shape.capabilities <= self._offers[worker.number]:
            return None
        return worker if worker.fits(shape.needs) else None

    def _best(self, shape: Shape) -> Free | None:
        found = [best for shelf in shape.shelves if (best := shelf.best(shape.needs, shape.weight)) is not None]
        return min(found, key=lambda worker: worker.key, default=None)

    def _lack(self, worker: Free, shape: Shape) -> float:
        rows = zip(shape.amounts, worker.amounts, self.weights, strict=True)
        return sum(max(0.0, need - have) * weight for need, have, weight in rows)

    def _counted(self, resources: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(resources.get(name, 0) for name in self._own) if self._own else ()
