"""Properties of every placement plan."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from uuid import UUID

from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.domain.packing import Demand, Plan, Supply, plan_placements
from tests.support.packing_cases import DEMANDS, SUPPLIES, demand, fits, supply

EPSILON = 1e-6


def given_to(result: Plan, demands: list[Demand]) -> dict[UUID, list[Demand]]:
    by_id = {d.execution_id: d for d in demands}
    got: dict[UUID, list[Demand]] = defaultdict(list)
    for planned in result.placements:
        got[planned.worker_id].append(by_id[planned.execution_id])
    return got


def overdue(demands: list[Demand]) -> list[Demand]:
    return [replace(d, overdue=number % 2 == 0) for number, d in enumerate(demands)]


@given(DEMANDS, SUPPLIES)
def test_no_plan_exceeds_a_worker(demands: list[Demand], supplies: list[Supply]) -> None:
    got = given_to(plan_placements(overdue(demands), supplies), demands)
    for worker in supplies:
        its = got.pop(worker.worker_id, [])
        assert not its or fits(worker, its[:-1], its[-1], spare=-EPSILON)
        assert all(set(d.capabilities) <= set(worker.capabilities) for d in its)
    assert not got, "placements only on given workers"


@given(DEMANDS, SUPPLIES)
def test_no_plan_exceeds_a_limit(demands: list[Demand], supplies: list[Supply]) -> None:
    placed = [d for its in given_to(plan_placements(demands, supplies), demands).values() for d in its]
    for own, room in (("queue_id", "queue_capacity"), ("job_id", "job_capacity"), ("owner_id", "owner_capacity")):
        rooms = {getattr(d, own): getattr(d, room) for d in demands if getattr(d, room) is not None}
        active = Counter(getattr(d, own) for d in placed)
        assert all(active[each] <= most for each, most in rooms.items())


@given(DEMANDS, SUPPLIES)
def test_every_demand_is_placed_once_or_held_with_a_reason(demands: list[Demand], supplies: list[Supply]) -> None:
    result = plan_placements(overdue(demands), supplies)
    placed = [a.execution_id for a in result.placements]
    assert sorted([*placed, *result.held]) == sorted(d.execution_id for d in demands)
    assert all(result.held.values())


@given(DEMANDS, SUPPLIES)
def test_no_runnable_demand_waits_while_a_worker_fits_it(demands: list[Demand], supplies: list[Supply]) -> None:
    """Except at a limit, and on capacity that is reserved for an overdue demand."""
    result = plan_placements(overdue(demands), supplies)
    got, by_id = given_to(result, demands), {d.execution_id: d for d in demands}
    for held, reason in result.held.items():
        if "limit" not in reason:
            for worker in supplies:
                its = got[worker.worker_id]
                if worker.worker_id not in result.reserved:
                    assert not fits(worker, its, by_id[held], spare=EPSILON), reason
                elif fits(worker, its, by_id[held], spare=EPSILON):
                    owner = by_id[result.reserved[worker.worker_id]].amounts()
                    after, needed = left(worker, [*its, by_id[held]]), by_id[held].amounts()
                    assert any(n and after[name] < owner.get(name, 0) + EPSILON for name, n in needed.items()), reason


@given(DEMANDS, SUPPLIES)
def test_others_get_only_the_surplus_of_a_reserved_worker(demands: list[Demand], supplies: list[Supply]) -> None:
    ready = overdue(demands)
    result = plan_placements(ready, supplies)
    order = [d.execution_id for d in ready]
    workers, by_id = {w.worker_id: w for w in supplies}, {d.execution_id: d for d in ready}
    for own, owner in result.reserved.items():
        its = given_to(result, ready)[own]
        before = [d for d in its if order.index(d.execution_id) < order.index(owner)]
        then, now = left(workers[own], before), left(workers[own], its)
        for name, need in by_id[owner].amounts().items():
            assert not need or now.get(name, 0) >= min(then.get(name, 0), need) - EPSILON, name


def left(worker: Supply, its: list[Demand]) -> dict[str, float]:
    given = [d.amounts() for d in its]
    names = {name for amounts in (worker.amounts(), *given) for name in amounts}
    return {name: worker.amounts().get(name, 0) - sum(amounts.get(name, 0) for amounts in given) for name in names}


@given(DEMANDS, SUPPLIES, st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_of_workers(
    demands: list[Demand], supplies: list[Supply], chance: random.Random
) -> None:
    shuffled = supplies.copy()
    chance.shuffle(shuffled)
    ready = overdue(demands)
    assert plan_placements(ready, supplies) == plan_placements(ready, shuffled) == plan_placements(ready, supplies)


@given(DEMANDS, SUPPLIES)
@example([demand(1, disk_mb=0)], [supply(1, disk_mb=-1)])
def test_asking_for_gates_changes_no_plan(demands: list[Demand], supplies: list[Supply]) -> None:
    explained = plan_placements(demands, supplies, explain={d.execution_id for d in demands})
    assert replace(explained, gates={}) == plan_placements(demands, supplies)
    for d in demands:
        gates = explained.gates[d.execution_id]
        limits = all(gate.open for gate in gates if gate.name in ("queue_limit", "job_limit", "owner_limit"))
        room: dict[UUID, bool] = {}
        for gate in gates:
            if gate.name.startswith("resource."):
                room[gate.holders[0]] = room.get(gate.holders[0], True) and gate.open
        assert (d.execution_id not in explained.held) == (limits and any(room.values()))


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_index_equals_a_scan_of_all_workers(seed: int) -> None:
    """With several blocks of workers, compare each choice with a full scan."""
    chance = random.Random(seed)  # noqa: S311 - to be repeated
    workers = [
        supply(n, slots=chance.randint(0, 4), cpu=chance.randint(0, 8), memory_mb=chance.randint(0, 8), disk_mb=99)
        for n in range(1, 91)
    ]
    demands = [demand(n, cpu=chance.randint(1, 8), memory_mb=chance.randint(1, 8)) for n in range(1, 91)]
    chosen = {a.execution_id: a.worker_id for a in plan_placements(demands, workers).placements}
    largest = {name: max(w.amounts()[name] for w in workers) or 1 for name in workers[0].amounts()}
    got: dict[UUID, list[Demand]] = defaultdict(list)
    for need in demands:
        able = {
            w.worker_id: sum(
                (free - sum(d.amounts()[name] for d in got[w.worker_id])) / largest[name]
                for name, free in w.amounts().items()
            )
            for w in workers
            if fits(w, got[w.worker_id], need)
        }
        if need.execution_id in chosen:
            own = chosen[need.execution_id]
            assert able[own] <= min(able.values()) + EPSILON
            got[own].append(need)
        else:
            assert not able


@given(st.integers(0, 10**6), st.booleans())
@example(5159, False)
@example(5159, True)
def test_no_demand_starves(seed: int, scarce: bool) -> None:
    """Small demands keep coming; a large overdue demand still runs within a known time.

    Its reservation is complete after the longest run, unless a worker with a smaller shortfall is reserved instead: at
    most once for every cpu that it needs, or twice if it also needs a gpu.
    """
    chance = random.Random(seed)  # noqa: S311 - to be repeated
    whole, longest, max_wait = 4.0, 5, 10
    gpu = {"gpu": 1} if scarce else {}
    running: dict[UUID, list[tuple[Demand, int]]] = {UUID(int=1): [], UUID(int=2): []}
    waiting, number = [demand(1, cpu=whole - scarce, resources=gpu)], 2
    for now in range(max_wait + int(whole) * (1 + scarce) * longest + 1):
        waiting += [demand(number + n, cpu=1, resources=gpu if n % 2 else {}) for n in range(8)]
        number += 8
        running = {own: [run for run in runs if run[1] > now] for own, runs in running.items()}
        free = [
            supply(
                own.int,
                cpu=whole - sum(d.cpu for d, _ in runs),
                resources={name: 1 - sum(d.resources.get(name, 0) for d, _ in runs) for name in gpu},
                whole_cpu=whole,
                whole_resources=gpu,
            )
            for own, runs in running.items()
        ]
        # At first it comes last: both workers are busy at its turn.
        order = [replace(waiting[0], overdue=now >= max_wait), *waiting[1:]]
        for planned in plan_placements(order[1:] + order[:1] if now == 0 else order, free).placements:
            need = next(d for d in waiting if d.execution_id == planned.execution_id)
            waiting.remove(need)
            running[planned.worker_id].append((need, now + chance.randint(1, longest)))
            if need.execution_id == UUID(int=1):
                return
    raise AssertionError("it never ran")
