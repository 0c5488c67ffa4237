"""How long one pass of the real `plan` takes: 10,000 ready executions, 1,000 workers, beside a loop that is blind."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from uuid import UUID

from benchmarks.verdict import Target, conclude, machine
from jobs.domain.packing import Demand, Plan, PlannedPlacement, Supply, plan_placements

READY = 10_000
WORKERS = 1_000
CORES = (4, 8, 16, 32)
ROUNDS = 5
# Placement runs beside firing, several times a second.
MAX_PASS_SECONDS = 1.0
MAX_GROWTH = 3.0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--ready", type=int, default=READY)
    arguments.add_argument("--workers", type=int, default=WORKERS)
    options = arguments.parse_args()
    before = machine()
    few, many = options.workers // 10, options.workers
    shapes = {
        "alike": (alike(options.ready), fleet(many)),
        "mixed": (mixed(options.ready), fleet(many)),
        "all_different": (all_different(options.ready), fleet(many)),
        "nothing_fits": (mixed(options.ready), busy_fleet(many)),
    }
    passes = {name: _measure(partial(plan_placements, *each)) for name, each in shapes.items()}
    floor_seconds, _ = _measure(lambda: _floor(*shapes["mixed"]))
    # The same work per worker on a tenth of them: what the number of workers costs, beside what the executions cost.
    small_seconds, small = _measure(lambda: plan_placements(mixed(options.ready // 10), fleet(few)))
    seconds, made = passes["mixed"]
    each = seconds / max(1, len(made.placements))
    growth = each / (small_seconds / max(1, len(small.placements)))
    result = {
        "benchmark": "planning",
        **before,
        "ready": options.ready,
        "workers": many,
        "passes": {
            name: {
                "seconds": round(took, 4),
                "placed": len(made.placements),
                "held": len(made.held),
                "us_per_execution": round(took / options.ready * 1e6, 2),
            }
            for name, (took, made) in passes.items()
        },
        "us_per_assignment": round(each * 1e6, 2),
        "floor_us_per_assignment": round(floor_seconds / options.ready * 1e6, 2),
    }
    targets = {
        "pass_seconds": Target(seconds, at_most=MAX_PASS_SECONDS),
        "worst_pass_seconds": Target(max(took for took, _ in passes.values()), at_most=2 * MAX_PASS_SECONDS),
        "growth_with_ten_times_the_workers": Target(growth, at_most=MAX_GROWTH),
    }
    return conclude(result, targets)


def alike(count: int) -> list[Demand]:
    return [Demand(UUID(int=n), 1.0, 512, 100, ["bash"]) for n in range(1, count + 1)]


def mixed(count: int) -> list[Demand]:
    """A few dozen kinds of work, as in a shop with so many jobs: some large, some for gpus, some of narrow queues."""
    chance = random.Random(1)
    return [
        Demand(
            UUID(int=n),
            chance.choice((0.25, 0.5, 1.0, 2.0)),
            chance.choice((128, 512, 2048)),
            64,
            [chance.choice(("bash", "python"))],
            {"gpu": 1} if chance.random() < 0.02 else {},
            queue_id=UUID(int=chance.randint(1, 8)),
            queue_capacity=count,
            job_id=UUID(int=chance.randint(10, 500)),
            job_capacity=count,
        )
        for n in range(1, count + 1)
    ]


def all_different(count: int) -> list[Demand]:
    chance = random.Random(2)
    return [
        Demand(UUID(int=n), chance.uniform(0.1, 2), chance.randint(64, 2048), chance.randint(1, 500), ["bash"])
        for n in range(1, count + 1)
    ]


def fleet(count: int) -> list[Supply]:
    chance = random.Random(3)
    return [_worker(n, chance.choice(CORES), chance.random() < 0.05) for n in range(1, count + 1)]


def busy_fleet(count: int) -> list[Supply]:
    """Everywhere slots and cpus, and nowhere memory: every worker looks well until it is looked at."""
    return [Supply(UUID(int=n), 1, ["bash", "python"], 16, 16.0, 100, 10_000) for n in range(1, count + 1)]


def _worker(number: int, cpu: int, has_gpus: bool) -> Supply:
    resources = {"gpu": 4} if has_gpus else {}
    return Supply(UUID(int=number), 1, ["bash", "python"], cpu * 4, cpu, cpu * 2048, cpu * 1000, resources)


def _floor(ready: list[Demand], workers: list[Supply]) -> Plan:
    """What a plan writes, with no thought spent on it."""
    made = Plan()
    for number, demand in enumerate(ready):
        worker = workers[number % len(workers)]
        made.placements.append(PlannedPlacement(demand.execution_id, worker.worker_id, worker.incarnation))
    return made


def _measure(work: Callable[[], Plan]) -> tuple[float, Plan]:
    """The best of a few: the rest is what others did on the machine."""
    best, made = float("inf"), Plan()
    for _ in range(ROUNDS):
        began = time.perf_counter()
        made = work()
        best = min(best, time.perf_counter() - began)
    return best, made


if __name__ == "__main__":
    sys.exit(main())
