"""Chooses deliveries to send now and delays of retries; values in, values out.

Invariant: neither one receiver nor one owner occupies all capacity, however long its backlog or slow its responses.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

MAX_IN_FLIGHT = 32
MAX_IN_FLIGHT_PER_OWNER = 16
MAX_IN_FLIGHT_PER_HOST = 8

MAX_TRIES = 10
_FIRST_RETRY_SECONDS = 10.0
_BACKOFF_FACTOR = 3.0
_JITTER = 0.2

SUCCESS_STATUSES = range(200, 300)
GONE_STATUS = 410


@dataclass(frozen=True, slots=True)
class DueDelivery:
    id: UUID
    owner_id: int
    host: str


@dataclass(slots=True)
class InFlight:
    """Deliveries in flight, counted by host and by owner."""

    hosts: Counter[str] = field(default_factory=Counter)
    owners: Counter[int] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.owners.total()

    def add(self, due: DueDelivery) -> None:
        self.hosts[due.host] += 1
        self.owners[due.owner_id] += 1

    def remove(self, due: DueDelivery) -> None:
        for counts, key in ((self.hosts, due.host), (self.owners, due.owner_id)):
            _decrement(counts, key)  # type: ignore[arg-type]  # each with its own kind of key

    def has_capacity_for(self, due: DueDelivery) -> bool:
        return (
            self.total < MAX_IN_FLIGHT
            and self.hosts[due.host] < MAX_IN_FLIGHT_PER_HOST
            and self.owners[due.owner_id] < MAX_IN_FLIGHT_PER_OWNER
        )


def choose_deliveries(candidates: Iterable[DueDelivery], busy: InFlight) -> list[DueDelivery]:
    """Choose deliveries, always one of the owner with the fewest in flight.

    Those of an owner keep their order, and `busy` stays unchanged. First come, first served would give each free place
    to the owner with the longest backlog.
    """
    after = InFlight(busy.hosts.copy(), busy.owners.copy())
    waiting: dict[int, deque[DueDelivery]] = {}
    for due in candidates:
        waiting.setdefault(due.owner_id, deque()).append(due)
    chosen = []
    while waiting and after.total < MAX_IN_FLIGHT:
        owner_id = min(waiting, key=after.owners.__getitem__)
        due = waiting[owner_id].popleft()
        if not waiting[owner_id]:
            del waiting[owner_id]
        if after.has_capacity_for(due):
            after.add(due)
            chosen.append(due)
    return chosen


def compute_retry_seconds(tries: int, chance: float) -> float:
    """Return the delay after that many tries; `chance` (0 to 1) is the jitter.

    All retries together take about a day.
    """
    delay = _FIRST_RETRY_SECONDS * _BACKOFF_FACTOR ** (tries - 1)
    return delay * (1 - _JITTER + 2 * _JITTER * chance)


def _decrement(counts: Counter[object], key: object) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
