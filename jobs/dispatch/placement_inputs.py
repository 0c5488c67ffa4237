"""The inputs of a plan: waiting executions and free capacity, the same for placement and explanations."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from uuid import UUID

from django.conf import settings

from jobs.access.network_permission import find_owners_with_network
from jobs.access.quotas import LimitedOwner
from jobs.db import sql
from jobs.domain import limits
from jobs.domain.packing import Demand, Supply
from jobs.execution.parking import ParkedExecution
from jobs.models import JobLine

NO_LIMITED_OWNERS: Mapping[int, LimitedOwner] = MappingProxyType({})
ANY_WORKER_ID = UUID(int=0)


@dataclass(frozen=True, slots=True, order=True)
class RankPosition:
    """A position in the order of ranks; a scan starts after it."""

    rank: datetime
    execution_id: UUID


TOP_RANK = RankPosition(datetime.min.replace(tzinfo=UTC), ANY_WORKER_ID)


@dataclass(frozen=True, slots=True)
class Scan:
    """What one scan of candidates has found."""

    demands: list[Demand]
    to_park: list[ParkedExecution]
    scanned: int
    end: RankPosition
    jobs_with_parked: frozenset[UUID]  # jobs of these demands with other executions parked
    without_network: frozenset[int]  # owners who need network access without permission
    has_owner_parked: bool  # an execution is parked because of its owner's limit


@dataclass(frozen=True, slots=True)
class _WaitingRow:
    """JSON stays text: a pass reads thousands of rows with a handful of different texts."""

    execution_id: UUID
    cpu: float
    memory_mb: int
    disk_mb: int
    capabilities: list[str]
    resources: str
    queue_id: UUID
    queue_capacity: int | None
    job_id: UUID
    job_capacity: int | None
    pinned_worker_id: UUID | None
    overdue: bool
    owner_id: int | None
    owner_limit: int | None  # None, as the owner: no limit

    def demand(self, limited: Mapping[int, LimitedOwner]) -> Demand:
        room = self.owner_limit
        if room is not None and self.owner_id is not None and self.owner_id in limited:
            room -= limited[self.owner_id].active
        return Demand(
            self.execution_id,
            self.cpu,
            self.memory_mb,
            self.disk_mb,
            self.capabilities,
            _parse_amounts(self.resources),
            self.queue_id,
            self.queue_capacity,
            self.job_id,
            self.job_capacity,
            self.pinned_worker_id,
            self.overdue,
            self.owner_id,
            room,
        )


@dataclass(frozen=True, slots=True)
class _ScannedRow(_WaitingRow):
    """A candidate; a row without a decision only carries how far the scan came."""

    decision: str | None
    network: bool
    job_owner_id: int
    has_parked: bool
    scanned: int
    last_rank: datetime | None
    last_id: UUID | None
    has_owner_parked: bool

    @property
    def parked(self) -> ParkedExecution:
        if self.decision == "owner":
            return ParkedExecution(self.execution_id, None, self.job_owner_id)
        return ParkedExecution(self.execution_id, JobLine.WITH_NETWORK if self.network else JobLine.WITHOUT_NETWORK)


@dataclass(frozen=True, slots=True)
class _WorkerRow:
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
        offered, taken = _parse_amounts(self.resources), _parse_amounts(self.taken)
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
            {**_parse_amounts(self.whole), **offered},
            self.name,
        )


def scan_ready_executions(
    pool: str,
    limit: int,
    after: RankPosition = TOP_RANK,
    *,
    limited: Mapping[int, LimitedOwner] = NO_LIMITED_OWNERS,
    full_owners: Collection[int] = (),
    full_queues: Collection[UUID] = (),
    without_network: Collection[int] = (),
    unplaceable: Collection[Demand] = (),
    reserved_for: Collection[UUID] = (),
) -> Scan:
    """Scan up to `limit` candidates.

    `unplaceable`: leave out demands of the same shape. `reserved_for`: but not these, which have a worker reserved.
    """
    full = {owner.owner_id for owner in limited.values() if owner.is_full}
    parameters = {
        "pool": pool,
        "limit": limit,
        "after_rank": after.rank,
        "after_id": after.execution_id,
        "anywhere": ANY_WORKER_ID,
        "reserve_seconds": limits.RESERVE_AFTER_SECONDS,
        "full_owners": sorted(full.union(full_owners)),
        "full_queues": list(full_queues),
        "without_network": list(without_network),
        "unplaceable": json.dumps([_encode_shape(demand) for demand in unplaceable]),
        "reserved_for": list(reserved_for),
        "default_executions": settings.PUNCTUAL_OWNER_CONCURRENCY,
    }
    rows = sql.fetch("scan_ready_executions", parameters, _ScannedRow)
    placeable = [row for row in rows if row.decision == "place"]
    with_network = {row.job_owner_id for row in placeable if row.network}
    refused = with_network - find_owners_with_network(with_network) if with_network else set()
    placeable = [row for row in placeable if not (row.network and row.job_owner_id in refused)]
    first = rows[0]
    return Scan(
        [row.demand(limited) for row in placeable],
        [row.parked for row in rows if row.decision in ("line", "owner")],
        first.scanned,
        RankPosition(first.last_rank, first.last_id) if first.last_rank and first.last_id else after,
        frozenset(row.job_id for row in placeable if row.has_parked),
        frozenset(refused),
        first.has_owner_parked,
    )


def _encode_shape(demand: Demand) -> dict[str, object]:
    return {
        "cpu": demand.cpu,
        "memory_mb": demand.memory_mb,
        "disk_mb": demand.disk_mb,
        "capabilities": demand.capabilities,
        "resources": dict(demand.resources),
        "pin": str(demand.worker_id or ANY_WORKER_ID),
        "overdue": demand.overdue,
    }


def read_demand(execution_id: UUID, limited: Mapping[int, LimitedOwner]) -> Demand:
    """Return the demand of any execution, as if it were its turn."""
    parameters = {
        "id": execution_id,
        "reserve_seconds": limits.RESERVE_AFTER_SECONDS,
        "default_executions": settings.PUNCTUAL_OWNER_CONCURRENCY,
    }
    (row,) = sql.fetch("read_waiting_demand", parameters, _WaitingRow)
    return row.demand(limited)


def read_free_capacity(pool: str, *, full_ones: bool) -> list[Supply]:
    return [row.supply() for row in sql.fetch("read_free_capacity", {"pool": pool, "full_ones": full_ones}, _WorkerRow)]


@lru_cache(maxsize=1024)
def _parse_amounts(text: str) -> Mapping[str, int]:
    amounts: dict[str, int] = json.loads(text)
    return amounts
