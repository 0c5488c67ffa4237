"""Index of workers by free capacity, which finds the best fit without visiting each worker.

Invariant: a block's `max_amounts` is never less than any of its workers' amounts, so a skipped block holds no fit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import add, ge, mul

from jobs.domain.packing.values import Supply

BLOCK_WORKERS = 24
# Sums of fractions of a cpu are not exact.
EPSILON = 1e-9

Key = tuple[float, int]


class WorkerCapacity:
    """A worker's free amounts during a pass, without its reserved part."""

    __slots__ = ("amounts", "key", "number", "reserved", "supply")

    def __init__(self, supply: Supply, number: int, amounts: Sequence[float], weights: Sequence[float]) -> None:
        self.supply = supply
        self.number = number
        self.amounts = list(amounts)
        self.reserved: list[float] | None = None
        self.key: Key = (sum(map(mul, amounts, weights)), number)

    def update_key(self, weights: Sequence[float]) -> None:
        self.key = (sum(map(mul, self.amounts, weights)), self.number)

    @property
    def free(self) -> list[float]:
        return self.amounts if self.reserved is None else list(map(add, self.amounts, self.reserved))

    def fits(self, needs: Sequence[float]) -> bool:
        return all(map(ge, self.amounts, needs))


class _Block:
    __slots__ = ("keys", "max_amounts", "workers")

    def __init__(self, workers: list[WorkerCapacity]) -> None:
        self.workers = workers
        self.keys = [worker.key for worker in workers]
        self.max_amounts: list[float] = []
        self.recompute_max()

    def recompute_max(self) -> None:
        self.max_amounts = [max(column) for column in zip(*(worker.amounts for worker in self.workers), strict=True)]


class CapacityIndex:
    def __init__(self, workers: Sequence[WorkerCapacity]) -> None:
        ordered = sorted(workers, key=lambda worker: worker.key)
        self._blocks = [
            _Block(ordered[first : first + BLOCK_WORKERS]) for first in range(0, len(ordered), BLOCK_WORKERS)
        ]
        self._last_keys = [block.keys[-1] for block in self._blocks]

    def best(self, needs: Sequence[float], weight: float) -> WorkerCapacity | None:
        """Return the fitting worker with the least free capacity; a worker that fits weighs at least `weight`."""
        for number in range(bisect_left(self._last_keys, (weight - EPSILON, -1)), len(self._blocks)):
            block = self._blocks[number]
            if not all(map(ge, block.max_amounts, needs)):
                continue
            for worker in block.workers:
                if all(map(ge, worker.amounts, needs)):
                    return worker
            block.recompute_max()
        return None

    def remove(self, worker: WorkerCapacity) -> None:
        number = bisect_left(self._last_keys, worker.key)
        block = self._blocks[number]
        place = bisect_left(block.keys, worker.key)
        del block.keys[place], block.workers[place]
        if block.keys:
            self._last_keys[number] = block.keys[-1]
        else:
            del self._blocks[number], self._last_keys[number]

    def add(self, worker: WorkerCapacity) -> None:
        if not self._blocks:
            self._blocks, self._last_keys = [_Block([worker])], [worker.key]
            return
        number = min(bisect_left(self._last_keys, worker.key), len(self._blocks) - 1)
        block = self._blocks[number]
        place = bisect_left(block.keys, worker.key)
        block.keys.insert(place, worker.key)
        block.workers.insert(place, worker)
        block.max_amounts = list(map(max, block.max_amounts, worker.amounts))
        halves = [block]
        if len(block.keys) > 2 * BLOCK_WORKERS:
            halves = [_Block(block.workers[:BLOCK_WORKERS]), _Block(block.workers[BLOCK_WORKERS:])]
        self._blocks[number : number + 1] = halves
        self._last_keys[number : number + 1] = [half.keys[-1] for half in halves]
