"""A million executions on 5,000 workers over a virtual clock, placed by the real `plan`: utilisation and waiting.

Arrivals swing around what the workers can do, so that for a part of the time more comes than can run: then priority,
ageing and the worker that is kept for large work decide who waits. That nothing is given out
which is not there is checked.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from uuid import UUID

from benchmarks.verdict import Target, conclude, machine, percentile
from jobs.domain import limits
from jobs.domain.packing import Demand, Supply, plan_placements

EXECUTIONS = 1_000_000
WORKERS = 5_000
TICK_SECONDS = 4.0
AGING_SECONDS = 60.0
MEAN_RUN_SECONDS = 60.0
# Of what the workers can do; the swing takes it above that for a while, twice.
MEAN_LOAD, SWING, SWINGS = 0.85, 0.35, 2
LARGE_SHARE = 0.002
CORES = (4, 8, 16, 32)
KINDS = ((0.5, 512), (1.0, 1024), (2.0, 2048), (4.0, 8192))
LARGE = (30.0, 60_000)


@dataclass(slots=True)
class Machine:
    supply: Supply
    whole: tuple[int, float, int]
    slots: int
    cpu: float
    memory_mb: int

    def change(self, cpu: float, memory_mb: int, slots: int) -> None:
        self.slots, self.cpu, self.memory_mb = self.slots + slots, self.cpu + cpu, self.memory_mb + memory_mb
        if self.slots < 0 or self.cpu < -1e-6 or self.memory_mb < 0:
            raise AssertionError(f"the worker {self.supply.worker_id} was given more than it has")
        slots_whole, cpu_whole, memory_whole = self.whole
        whole = {"slots": slots_whole, "cpu": cpu_whole, "memory_mb": memory_whole}
        own = self.supply.worker_id
        self.supply = Supply(own, 1, ("bash",), self.slots, self.cpu, self.memory_mb, 0, {}, whole)


@dataclass(slots=True)
class Waiting:
    demand: Demand
    arrived: float
    priority: int


@dataclass(slots=True)
class Tally:
    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    busy_cpu_seconds: float = 0.0
    offered_cpu_seconds: float = 0.0
    plan_seconds: float = 0.0
    passes: int = 0
    reservations: int = 0
    longest_queue: int = 0


class Simulation:
    def __init__(self, executions: int, workers: int) -> None:
        self.chance = random.Random(7)
        self.left = executions
        self.machines = {
            UUID(int=n): _machine(UUID(int=n), self.chance.choice(CORES)) for n in range(1, workers + 1)
        }  # fmt: skip
        self.all_cpu = sum(each.cpu for each in self.machines.values())
        large = LARGE_SHARE * LARGE[0]
        mean_cpu = large + (1 - LARGE_SHARE) * sum(cpu for cpu, _ in KINDS) / len(KINDS)
        self.rate = MEAN_LOAD * self.all_cpu / (mean_cpu * MEAN_RUN_SECONDS)
        self.span = executions / self.rate
        self.waiting: dict[UUID, Waiting] = {}
        self.order: list[tuple[float, UUID]] = []
        self.running: list[tuple[float, int, UUID, float, int]] = []
        self.tally, self.now, self.number, self.due = Tally(), 0.0, 0, 0.0

    def step(self) -> bool:
        """One beat of the clock; false once everything has been placed and has ended."""
        self._end()
        self._arrive()
        self._place()
        arriving = self.left > 0
        used = self.all_cpu - sum(each.cpu for each in self.machines.values())
        if arriving:
            self.tally.busy_cpu_seconds += used * TICK_SECONDS
            self.tally.offered_cpu_seconds += self.all_cpu * TICK_SECONDS
        self.now += TICK_SECONDS
        return arriving or bool(self.waiting) or bool(self.running)

    def _end(self) -> None:
        while self.running and self.running[0][0] <= self.now:
            _, _, worker, cpu, memory_mb = heapq.heappop(self.running)
            self.machines[worker].change(cpu, memory_mb, 1)

    def _arrive(self) -> None:
        swing = 1 + SWING * math.sin(2 * math.pi * SWINGS * self.now / self.span)
        self.due += self.rate * swing * TICK_SECONDS
        count = min(self.left, int(self.due))
        self.due -= count
        self.left -= count
        for _ in range(count):
            self.number += 1
            is_large = self.chance.random() < LARGE_SHARE
            cpu, memory_mb = LARGE if is_large else self.chance.choice(KINDS)
            priority, own = self.chance.randint(0, 9), UUID(int=self.number)
            self.waiting[own] = Waiting(Demand(own, cpu, memory_mb, 0, ("bash",)), self.now, priority)
            self.order.append((self.now - priority * AGING_SECONDS, own))
        # Each batch is nearly in order already.
        self.order.sort(key=lambda each: each[0])

    def _place(self) -> None:
        """As often as the beats would: until a full batch places nothing more."""
        while self.order:
            ready = [self._demand(own) for _, own in self.order[: limits.PLACE_BATCH_EXECUTIONS]]
            began = time.perf_counter()
            made = plan_placements(ready, [each.supply for each in self.machines.values()])
            self.tally.plan_seconds += time.perf_counter() - began
            self.tally.passes += 1
            self.tally.reservations += len(made.reserved)
            for planned in made.placements:
                self._start(planned.execution_id, planned.worker_id)
            self.order = [each for each in self.order if each[1] in self.waiting]
            self.tally.longest_queue = max(self.tally.longest_queue, len(self.order))
            if not made.placements or len(ready) < limits.PLACE_BATCH_EXECUTIONS:
                return

    def _demand(self, own: UUID) -> Demand:
        row = self.waiting[own]
        demand = row.demand
        if demand.overdue or self.now - row.arrived <= limits.RESERVE_AFTER_SECONDS:
            return demand
        row.demand = Demand(own, demand.cpu, demand.memory_mb, 0, ("bash",), overdue=True)
        return row.demand

    def _start(self, own: UUID, worker: UUID) -> None:
        row = self.waiting.pop(own)
        cpu, memory_mb = row.demand.cpu, row.demand.memory_mb
        self.machines[worker].change(-cpu, -memory_mb, -1)
        ends = self.now + min(10 * MEAN_RUN_SECONDS, self.chance.expovariate(1 / MEAN_RUN_SECONDS))
        heapq.heappush(self.running, (ends, own.int, worker, cpu, memory_mb))
        self.tally.waits["large" if cpu == LARGE[0] else str(row.priority)].append(self.now - row.arrived)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--executions", type=int, default=EXECUTIONS)
    arguments.add_argument("--workers", type=int, default=WORKERS)
    arguments.add_argument("--most-seconds", type=float, default=900, help="It gives up after this long.")
    options = arguments.parse_args()
    before, began = machine(), time.monotonic()
    simulation = Simulation(options.executions, options.workers)
    while simulation.step() and time.monotonic() - began < options.most_seconds:
        pass
    tally = simulation.tally
    waits = dict(sorted(tally.waits.items()))
    placed = sum(map(len, waits.values()))
    result = {
        "benchmark": "simulation",
        **before,
        "executions": options.executions,
        "workers": options.workers,
        "virtual_seconds": simulation.now,
        "seconds": round(time.monotonic() - began, 1),
        "plan_seconds": round(tally.plan_seconds, 1),
        "passes": tally.passes,
        "us_per_assignment": round(tally.plan_seconds / max(1, placed) * 1e6, 1),
        "longest_queue": tally.longest_queue,
        "workers_kept": tally.reservations,
        "wait_seconds_by_priority": {
            name: {"p50": percentile(each, 0.5), "p99": percentile(each, 0.99), "max": max(each)}
            for name, each in waits.items()
        },
    }
    highest, lowest = waits.get("9", [0.0]), waits.get("0", [0.0])
    targets = {
        "ended": Target(placed - len(simulation.running), at_least=options.executions),
        "utilisation": Target(tally.busy_cpu_seconds / max(1.0, tally.offered_cpu_seconds), at_least=0.75),
        "wait_p99_of_priority_9": Target(percentile(highest, 0.99), at_most=TICK_SECONDS),
        # Nine steps of ageing, and what a swing is above what can run.
        "longest_wait_of_priority_0": Target(max(lowest), at_most=9 * AGING_SECONDS + simulation.span / SWINGS),
    }
    return conclude(result, targets)


def _machine(own: UUID, cores: int) -> Machine:
    slots, cpu, memory_mb = cores * 4, float(cores), cores * 2048
    made = Machine(Supply(own, 1, ("bash",), slots, cpu, memory_mb, 0), (slots, cpu, memory_mb), slots, cpu, memory_mb)
    made.change(0.0, 0, 0)
    return made


if __name__ == "__main__":
    sys.exit(main())
