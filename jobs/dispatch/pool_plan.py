"""One planning pass over a pool, for placement and for explanations.

A pass continues past executions that fit nowhere until the capacity is used up, so a backlog of one kind of work hides
no other. It scans a bounded number of candidates by rank, and the next pass continues where it stopped: every waiting
execution is reached after a bounded number of passes, even while the capacity is used up again and again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from jobs.access.quotas import LimitedOwner
from jobs.dispatch.placement_inputs import (
    NO_LIMITED_OWNERS,
    TOP_RANK,
    RankPosition,
    Scan,
    read_demand,
    read_free_capacity,
    scan_ready_executions,
)
from jobs.dispatch.scan_cursor import ScanCursor, ScanProgress
from jobs.domain import limits
from jobs.domain.packing import Demand, Gate, Plan, Supply, plan_placements
from jobs.execution.parking import ParkedExecution

FIRST_SCAN_EXECUTIONS = 16
# A scan leaves out at most this many shapes that fit nowhere.
MAX_UNPLACEABLE_SHAPES = 1000

LimitedOwners = Mapping[int, LimitedOwner]


@dataclass(frozen=True, slots=True)
class PassLimits:
    placed: int = limits.PLACE_BATCH_EXECUTIONS
    scanned: int = limits.PLACE_SCAN_EXECUTIONS


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """The plan's decision on one execution, after everything that ranks before it."""

    gates: Sequence[Gate]
    worker_id: UUID | None
    reason: str  # why it waits, if no worker gets it


class PoolPlan:
    """`limited`: the owners with a limit; None: `lock` reads them when they are needed.

    `unpark_owners` is called if executions are parked for their owner, and returns how many of them it unparked.
    """

    def __init__(
        self,
        pool: str,
        bounds: PassLimits,
        *,
        limited: LimitedOwners | None = None,
        lock: Callable[[], LimitedOwners] = lambda: NO_LIMITED_OWNERS,
        unpark_owners: Callable[[], int] = lambda: 0,
    ) -> None:
        self.result = Plan()
        self.free_slots = 1  # known once workers were read
        self.stopped = False  # before the last candidate, with capacity left
        self.progress = ScanProgress()  # where the next pass continues
        self._pool, self._bounds, self._limited = pool, bounds, limited
        self._lock, self._unpark_owners = lock, unpark_owners
        self._workers: Sequence[Supply] | None = None
        self._full_ones = False
        # Placed executions and those with a reserved worker; nothing else matters to later ones.
        self._decided: list[Demand] = []
        self._unplaceable: dict[tuple[object, ...], Demand] = {}
        self._without_network: set[int] = set()
        self.owners_unparked = False
        self._reset_decisions()

    def _reset_decisions(self) -> None:
        """Forget the decisions, but not what was learned about shapes and permissions."""
        self.held = 0
        self.to_park: list[ParkedExecution] = []
        self.jobs_with_parked: set[UUID] = set()
        self._decided = []
        self._full_queues: set[UUID] = set()
        self._full_owners: set[int] = set()

    @property
    def is_full(self) -> bool:
        return len(self.result.placements) >= self.free_slots

    @property
    def _is_batch_full(self) -> bool:
        """Whether this is as much as one transaction should write."""
        return len(self.result.placements) >= self._bounds.placed or len(self.to_park) >= limits.PLACE_BATCH_EXECUTIONS

    def run(self, resume: ScanProgress | None = None, *, asked: UUID | None = None) -> PlacementDecision | None:
        """Plan until the execution `asked` has its turn; None: it had none, or none is asked for."""
        cursor = ScanCursor(resume or ScanProgress(), self._bounds.scanned)
        step = min(self._bounds.placed, FIRST_SCAN_EXECUTIONS)
        while True:
            scan = self._scan(step, cursor.at)
            cursor.count(scan.scanned)
            exhausted = scan.scanned < step
            if asked is not None and any(demand.execution_id == asked for demand in scan.demands):
                return self._decide(scan.demands, asked)
            before = len(self.result.placements)
            if scan.demands or (self._workers is None and not exhausted):
                self._plan(scan.demands)
            if exhausted or self.is_full:
                placed = len(self.result.placements) > before
                self.progress = cursor.exhausted(placed=placed) if exhausted else cursor.full()
                return None
            if step < self._bounds.placed:
                # The first scan was small: start again from the top, which is cheaper than to remember it.
                step = min(self._bounds.placed, max(8 * step, 2 * self.free_slots))
                self._reset_decisions()
                continue
            if cursor.is_finished or self._is_batch_full:
                self.stopped, self.progress = True, cursor.stopped(scan.end)
                return None
            cursor.move_on(scan.end)

    def jobs_to_unpark(self) -> set[UUID]:
        """Return jobs with placed executions that may have others parked behind them."""
        if not self.jobs_with_parked and all(parked.line is None for parked in self.to_park):
            return set()
        reserved_for = set(self.result.reserved.values())
        return {
            d.job_id
            for d in self._decided
            if d.job_id and d.job_capacity is not None and d.execution_id not in reserved_for
        }

    def decide_for(self, execution_id: UUID) -> PlacementDecision:
        """Decide on one execution at its turn, or after all scanned candidates if the pass does not reach it."""
        self._full_ones = True
        decision = self.run(asked=execution_id)
        if decision is None:
            demand = read_demand(execution_id, self._limited or NO_LIMITED_OWNERS)
            decision = self._decide([demand], execution_id)
        return decision

    def _scan(self, step: int, at: RankPosition) -> Scan:
        scan = self._read(step, at)
        if scan.has_owner_parked and at == TOP_RANK and self._unpark_owners():
            self.owners_unparked = True
            scan = self._read(step, at)
        if self._limited is None and any(demand.owner_capacity is not None for demand in scan.demands):
            self._limited = self._lock()
            # Read again: from here on no other pass places for these owners.
            scan = self._read(step, at)
        self.to_park += scan.to_park
        self.jobs_with_parked |= scan.jobs_with_parked
        self._without_network |= scan.without_network
        return scan

    def _read(self, step: int, at: RankPosition) -> Scan:
        return scan_ready_executions(
            self._pool,
            step,
            at,
            limited=self._limited or NO_LIMITED_OWNERS,
            full_owners=self._full_owners,
            full_queues=self._full_queues,
            without_network=self._without_network,
            unplaceable=list(self._unplaceable.values())[-MAX_UNPLACEABLE_SHAPES:],
            reserved_for=self.result.reserved.values(),
        )

    def _decide(self, demands: Sequence[Demand], asked: UUID) -> PlacementDecision:
        self._plan(demands, asked=asked)
        placed = {each.execution_id: each.worker_id for each in self.result.placements}
        return PlacementDecision(self.result.gates[asked], placed.get(asked), self.result.held.get(asked, ""))

    def _plan(self, demands: Sequence[Demand], *, asked: UUID | None = None) -> None:
        ready = [*self._decided, *demands]
        # A worker without a free slot can still be reserved for an overdue execution.
        overdue = any(demand.overdue for demand in ready)
        if self._workers is None or overdue > self._full_ones:
            self._full_ones = self._full_ones or overdue
            self._workers = read_free_capacity(self._pool, full_ones=self._full_ones)
            # Every execution needs CPU and memory.
            self.free_slots = sum(max(0, w.slots) for w in self._workers if w.cpu > 0 and w.memory_mb > 0)
        self.result = plan_placements(ready, self._workers, explain=frozenset() if asked is None else {asked})
        self.held += sum(demand.execution_id in self.result.held for demand in demands)
        self._update_full(ready)

    def _update_full(self, ready: Sequence[Demand]) -> None:
        placed = {each.execution_id for each in self.result.placements}
        reserved_for = set(self.result.reserved.values())
        self._decided = [d for d in ready if d.execution_id in placed or d.execution_id in reserved_for]
        active = Counter[UUID | int | None]()
        for demand in self._decided:
            if demand.execution_id in placed:
                active.update((demand.queue_id, demand.owner_id))
        for demand in self._decided:
            if (
                demand.queue_id
                and demand.queue_capacity is not None
                and active[demand.queue_id] >= demand.queue_capacity
            ):
                self._full_queues.add(demand.queue_id)
            if (
                demand.owner_id
                and demand.owner_capacity is not None
                and active[demand.owner_id] >= demand.owner_capacity
            ):
                self._full_owners.add(demand.owner_id)
        for demand in self.result.tried:
            self._unplaceable[demand.shape] = demand
