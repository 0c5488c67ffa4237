"""Workers in order of how much they have free, so that the best fit is found without a look at each of them.

Invariant: a block's `most` is never less than what any of its workers has, so that a block passed over holds no fit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import ge, mul

from jobs.planning.values import Supply

BLOCK = 24
# Sums of fractions of a cpu are not exact.
EPSILON = 1e-9

Key = tuple[float, int]


class Free:
    """What a worker has left while a pass goes on."""

    __slots__ = ("amounts", "key", "number", "supply")

    def __init__(self, supply: Supply, number: int, amounts: Sequence[float], weights: Sequence[float]) -> None:
        self.supply = supply
        self.number = number
        self.amounts = list(amounts)
        self.key: Key = (sum(map(mul, amounts, weights)), number)

    def weigh(self, weights: Sequence[float]) -> None:
        self.key = (sum(map(mul, self.amounts, weights)), self.number)

    def fits(self, needs: Sequence[float]) -> bool:
        return all(map(ge, self.amounts, needs))


class _Block:
    __slots__ = ("keys", "most", "workers")

    def __init__(self, workers: list[Free]) -> None:
        self.workers = workers
        self.keys = [worker.key for worker in workers]
        self.most: list[float] = []
        self.tighten()

    def tighten(self) -> None:
        self.most = [max(column) for column in zip(*(worker.amounts for worker in self.workers), strict=True)]


class Shelf:
    def __init__(self, workers: Sequence[Free]) -> None:
        ordered = sorted(workers, key=lambda worker: worker.key)
        self._blocks = [_Block(ordered[first : first + BLOCK]) for first in range(0, len(ordered), BLOCK)]
        self._lasts = [block.keys[-1] for block in self._blocks]

    def best(self, needs: Sequence[float], weight: float) -> Free | None:
        """The fitting worker with the least left over; none that fits weighs less than what is needed."""
        for number in range(bisect_left(self._lasts, (weight - EPSILON, -1)), len(self._blocks)):
            block = self._blocks[number]
            if not all(map(ge, block.most, needs)):
                continue
            for worker in block.workers:
                if all(map(ge, worker.amounts, needs)):
                    return worker
            block.tighten()
        return None

    def remove(self, worker: Free) -> None:
        number = bisect_left(self._lasts, worker.key)
        block = self._blocks[number]
        place = bisect_left(block.keys, worker.key)
        del block.keys[place], block.workers[place]
        if block.keys:
            self._lasts[number] = block.keys[-1]
        else:
            del self._blocks[number], self._lasts[number]

    def add(self, worker: Free) -> None:
        if not self._blocks:
            self._blocks, self._lasts = [_Block([worker])], [worker.key]
            return
        number = min(bisect_left(self._lasts, worker.key), len(self._blocks) - 1)
        block = self._blocks[number]
        place = bisect_left(block.keys, worker.key)
        block.keys.insert(place, worker.key)
        block.workers.insert(place, worker)
        block.most = list(map(max, block.most, worker.amounts))
        halves = [block]
        if len(block.keys) > 2 * BLOCK:
            halves = [_Block(block.workers[:BLOCK]), _Block(block.workers[BLOCK:])]
        self._blocks[number : number + 1] = halves
        self._lasts[number : number + 1] = [half.keys[-1] for half in halves]
