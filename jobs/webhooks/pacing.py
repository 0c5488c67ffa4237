"""Which deliveries go now, and when one that failed goes again; values in, values out.

Invariant: neither one receiver nor one owner takes all places, however much is due for it and however slow it is.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

PLACES = 32
PLACES_PER_OWNER = 16
PLACES_PER_HOST = 8

MAX_TRIES = 10
_FIRST_RETRY_SECONDS = 10.0
_FACTOR = 3.0
_JITTER = 0.2

OK = range(200, 300)
GONE = 410


@dataclass(frozen=True, slots=True)
class Due:
    id: UUID
    owner_id: int
    host: str


@dataclass(slots=True)
class Busy:
    """What is on its way."""

    hosts: Counter[str] = field(default_factory=Counter)
    owners: Counter[int] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.owners.total()

    def take(self, due: Due) -> None:
        self.hosts[due.host] += 1
        self.owners[due.owner_id] += 1

    def free(self, due: Due) -> None:
        for counts, key in ((self.hosts, due.host), (self.owners, due.owner_id)):
            _subtract(counts, key)  # type: ignore[arg-type]  # each with its own kind of key

    def has_place_for(self, due: Due) -> bool:
        return (
            self.total < PLACES
            and self.hosts[due.host] < PLACES_PER_HOST
            and self.owners[due.owner_id] < PLACES_PER_OWNER
        )


def choose(candidates: Iterable[Due], busy: Busy) -> list[Due]:
    """Of the owner first who has the fewest on their way, and of each in the order given; `busy` stays as it is.

    So a place that becomes free is not for whoever has waited longest, which is whoever has most that waits.
    """
    after = Busy(busy.hosts.copy(), busy.owners.copy())
    waiting: dict[int, deque[Due]] = {}
    for due in candidates:
        waiting.setdefault(due.owner_id, deque()).append(due)
    chosen = []
    while waiting and after.total < PLACES:
        owner_id = min(waiting, key=after.owners.__getitem__)
        due = waiting[owner_id].popleft()
        if not waiting[owner_id]:
            del waiting[owner_id]
        if after.has_place_for(due):
            after.take(due)
            chosen.append(due)
    return chosen


def retry_seconds(tries: int, chance: float) -> float:
    """After so many tries; `chance` from 0 to 1 spreads what failed together. All of them take about a day."""
    delay = _FIRST_RETRY_SECONDS * _FACTOR ** (tries - 1)
    return delay * (1 - _JITTER + 2 * _JITTER * chance)


def _subtract(counts: Counter[object], key: object) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
