"""What is true of every plan, whatever waits and whatever is free."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from uuid import UUID

from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.planning import Demand, Plan, Supply, plan
from tests.unit.planning_cases import DEMANDS, SUPPLIES, demand, fits, supply

EPSILON = 1e-6


def given_to(result: Plan, demands: list[Demand]) -> dict[UUID, list[Demand]]:
    by_id = {d.execution_id: d for d in demands}
    got: dict[UUID, list[Demand]] = defaultdict(list)
    for planned in result.assignments:
        got[planned.worker_id].append(by_id[planned.execution_id])
    return got


def overdue(demands: list[Demand]) -> list[Demand]:
    return [replace(d, overdue=number % 2 == 0) for number, d in enumerate(demands)]


@given(DEMANDS, SUPPLIES)
def test_no_plan_gives_a_worker_more_than_it_has(demands: list[Demand], supplies: list[Supply]) -> None:
    got = given_to(plan(overdue(demands), supplies), demands)
    for worker in supplies:
        its = got.pop(worker.worker_id, [])
        assert not its or fits(worker, its[:-1], its[-1], spare=-EPSILON)
        assert all(set(d.capabilities) <= set(worker.capabilities) for d in its)
    assert not got, "only to workers that were offered"


@given(DEMANDS, SUPPLIES)
def test_no_plan_passes_a_limit(demands: list[Demand], supplies: list[Supply]) -> None:
    placed = [d for its in given_to(plan(demands, supplies), demands).values() for d in its]
    for own, room in (("queue_id", "queue_room"), ("job_id", "job_room"), ("owner_id", "owner_room")):
        rooms = {getattr(d, own): getattr(d, room) for d in demands if getattr(d, room) is not None}
        active = Counter(getattr(d, own) for d in placed)
        assert all(active[each] <= most for each, most in rooms.items())


@given(DEMANDS, SUPPLIES)
def test_every_demand_is_placed_once_or_held_with_a_reason(demands: list[Demand], supplies: list[Supply]) -> None:
    result = plan(overdue(demands), supplies)
    placed = [a.execution_id for a in result.assignments]
    assert sorted([*placed, *result.held]) == sorted(d.execution_id for d in demands)
    assert all(result.held.values())


@given(DEMANDS, SUPPLIES)
def test_nothing_that_could_run_waits_while_a_worker_fits_it(demands: list[Demand], supplies: list[Supply]) -> None:
    """Except at a limit, and on a worker that is kept for somebody who has waited too long."""
    result = plan(overdue(demands), supplies)
    got, by_id = given_to(result, demands), {d.execution_id: d for d in demands}
    for held, reason in result.held.items():
        if "limit" not in reason:
            for worker in supplies:
                if worker.worker_id not in result.reserved:
                    assert not fits(worker, got[worker.worker_id], by_id[held], spare=EPSILON), reason


@given(DEMANDS, SUPPLIES, st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_of_workers(
    demands: list[Demand], supplies: list[Supply], chance: random.Random
) -> None:
    shuffled = supplies.copy()
    chance.shuffle(shuffled)
    ready = overdue(demands)
    assert plan(ready, supplies) == plan(ready, shuffled) == plan(ready, supplies)


@given(DEMANDS, SUPPLIES)
@example([demand(1, disk_mb=0)], [supply(1, disk_mb=-1)])
def test_telling_the_gates_changes_no_plan(demands: list[Demand], supplies: list[Supply]) -> None:
    told = plan(demands, supplies, asked={d.execution_id for d in demands})
    assert replace(told, gates={}) == plan(demands, supplies)
    for d in demands:
        gates = told.gates[d.execution_id]
        limits = all(gate.open for gate in gates if gate.name in ("queue_limit", "job_limit", "owner_limit"))
        room: dict[UUID, bool] = {}
        for gate in gates:
            if gate.name.startswith("resource."):
                room[gate.holders[0]] = room.get(gate.holders[0], True) and gate.open
        assert (d.execution_id not in told.held) == (limits and any(room.values()))


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_the_index_finds_what_a_look_at_every_worker_finds(seed: int) -> None:
    """Enough workers for several blocks, and a check of each choice against all of them."""
    chance = random.Random(seed)  # noqa: S311 - to be repeated
    workers = [
        supply(n, slots=chance.randint(0, 4), cpu=chance.randint(0, 8), memory_mb=chance.randint(0, 8), disk_mb=99)
        for n in range(1, 91)
    ]
    demands = [demand(n, cpu=chance.randint(1, 8), memory_mb=chance.randint(1, 8)) for n in range(1, 91)]
    chosen = {a.execution_id: a.worker_id for a in plan(demands, workers).assignments}
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


@given(st.integers(0, 10**6))
@example(5159)
def test_nothing_starves(seed: int) -> None:
    """Small work keeps coming; a large one that has waited long enough runs within a known time all the same.

    The worker that is kept for it is empty after the longest run, unless one that lacks less is kept instead: that
    happens at most once for every cpu that it needs.
    """
    chance = random.Random(seed)  # noqa: S311 - to be repeated
    whole, longest, patience = 4.0, 5, 10
    running: dict[UUID, list[tuple[float, int]]] = {UUID(int=1): [], UUID(int=2): []}
    waiting, number = [demand(1, cpu=whole)], 2
    for now in range(patience + int(whole) * longest + 1):
        waiting += [demand(number + n, cpu=1) for n in range(8)]
        number += 8
        running = {own: [run for run in runs if run[1] > now] for own, runs in running.items()}
        free = [
            supply(own.int, cpu=whole - sum(cpu for cpu, _ in runs), whole_cpu=whole) for own, runs in running.items()
        ]
        # At first it comes last: both workers are busy by the time that it is looked at.
        order = [replace(waiting[0], overdue=now >= patience), *waiting[1:]]
        for planned in plan(order[1:] + order[:1] if now == 0 else order, free).assignments:
            need = next(d for d in waiting if d.execution_id == planned.execution_id)
            waiting.remove(need)
            running[planned.worker_id].append((need.cpu, now + chance.randint(1, longest)))
            if need.execution_id == UUID(int=1):
                return
    raise AssertionError("it never ran")
