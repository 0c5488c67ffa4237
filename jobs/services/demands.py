"""What waits and what is free, read for a plan: placement and explanations read the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from uuid import UUID

from django.conf import settings

from jobs import conf, sql
from jobs.planning import Demand, Supply
from jobs.services.owner_limits import LimitedOwner

NOBODY: Mapping[int, LimitedOwner] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Waiting:
    """JSON comes as text: a pass reads thousands of rows, and a handful of different texts."""

    execution_id: UUID
    cpu: float
    memory_mb: int
    disk_mb: int
    capabilities: list[str]
    resources: str
    queue_id: UUID
    queue_room: int | None
    job_id: UUID
    job_room: int | None
    pinned_worker_id: UUID | None
    overdue: bool
    owner_id: int | None
    owner_most: int | None  # None, as the owner: no limit

    def demand(self, limited: Mapping[int, LimitedOwner]) -> Demand:
        room = self.owner_most
        if room is not None and self.owner_id is not None and self.owner_id in limited:
            room -= limited[self.owner_id].active
        return Demand(
            self.execution_id,
            self.cpu,
            self.memory_mb,
            self.disk_mb,
            self.capabilities,
            _amounts(self.resources),
            self.queue_id,
            self.queue_room,
            self.job_id,
            self.job_room,
            self.pinned_worker_id,
            self.overdue,
            self.owner_id,
            room,
        )


@dataclass(frozen=True, slots=True)
class _Worker:
    worker_id: UUID
    incarnation: int
    capabilities: list[str]
    name: str
    slots: int
    cpu: float
    memory_mb: int
    disk_mb: int
    taken: str
    whole: str
    resources: str

    def supply(self) -> Supply:
        offered, taken = _amounts(self.resources), _amounts(self.taken)
        free = {name: amount - taken.get(name, 0) for name, amount in offered.items()}
        return Supply(
            self.worker_id,
            self.incarnation,
            self.capabilities,
            self.slots,
            self.cpu,
            self.memory_mb,
            self.disk_mb,
            free,
            {**_amounts(self.whole), **offered},
            self.name,
        )


def read_ready(pool: str, limit: int, limited: Mapping[int, LimitedOwner] = NOBODY) -> list[Demand]:
    """`limited`: what was read of owners who have a limit; those who are full are left out."""
    parameters = {
        "pool": pool,
        "limit": limit,
        "reserve_seconds": conf.RESERVE_AFTER_SECONDS,
        "full_owners": [owner.owner_id for owner in limited.values() if owner.is_full],
        "default_executions": settings.PUNCTUAL_OWNER_CONCURRENCY,
    }
    return [row.demand(limited) for row in sql.fetch("ready_executions", parameters, _Waiting)]


def read_demand(execution_id: UUID, limited: Mapping[int, LimitedOwner]) -> Demand:
    """Of any execution that there is, as if its turn had come."""
    parameters = {
        "id": execution_id,
        "reserve_seconds": conf.RESERVE_AFTER_SECONDS,
        "default_executions": settings.PUNCTUAL_OWNER_CONCURRENCY,
    }
    (row,) = sql.fetch("waiting_demand", parameters, _Waiting)
    return row.demand(limited)


def read_workers(pool: str, *, full_ones: bool) -> list[Supply]:
    return [row.supply() for row in sql.fetch("free_capacity", {"pool": pool, "full_ones": full_ones}, _Worker)]


@lru_cache(maxsize=1024)
def _amounts(text: str) -> Mapping[str, int]:
    amounts: dict[str, int] = json.loads(text)
    return amounts
