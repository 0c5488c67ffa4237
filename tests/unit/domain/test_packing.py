"""Placement plans: capacity, order, limits and reasons."""

from __future__ import annotations

from uuid import UUID

from jobs.domain.packing import plan_placements
from tests.support.packing_cases import demand, supply, where


def test_no_demands_make_an_empty_plan() -> None:
    assert plan_placements([], [supply(1)]).placements == []
    assert plan_placements([], []).held == {}


def test_placement_names_the_incarnation() -> None:
    (planned,) = plan_placements([demand(1)], [supply(7)]).placements
    assert (planned.execution_id, planned.worker_id, planned.incarnation) == (UUID(int=1), UUID(int=7), 7)


def test_exact_fit_uses_the_whole_worker() -> None:
    one = supply(1, slots=1, cpu=0.3, memory_mb=5, disk_mb=2)
    twice = [demand(number, cpu=0.1 + 0.2, memory_mb=5, disk_mb=2) for number in (1, 2)]
    result = plan_placements(twice, [one])
    assert [a.execution_id.int for a in result.placements] == [1]
    assert list(result.held) == [UUID(int=2)]


def test_small_demand_passes_a_large_one_that_does_not_fit() -> None:
    assert where([demand(1, cpu=11), demand(2, cpu=1)], [supply(1)]) == {2: 1}


def test_first_demand_gets_the_last_capacity() -> None:
    assert where([demand(2), demand(1)], [supply(1, slots=1)]) == {2: 1}


def test_worker_with_the_least_free_capacity_is_chosen() -> None:
    assert where([demand(1, cpu=2)], [supply(1, cpu=9), supply(2, cpu=2), supply(3, cpu=4)]) == {1: 2}


def test_free_capacity_is_measured_in_shares_of_all_resources() -> None:
    small_machine, large_machine = supply(1, cpu=9.9, memory_mb=2), supply(2, cpu=9.8, memory_mb=10)
    assert where([demand(1)], [large_machine, small_machine]) == {1: 1}


def test_only_a_worker_with_every_capability_is_chosen() -> None:
    workers = [supply(1, capabilities=("bash",)), supply(2, capabilities=("bash", "gpu")), supply(3)]
    assert where([demand(1, capabilities=("gpu", "bash"))], workers) == {1: 2}


def test_custom_resources_are_allocated_completely() -> None:
    workers = [supply(1), supply(2, resources={"gpu": 2})]
    assert where([demand(n, resources={"gpu": 1}) for n in (1, 2, 3)], workers) == {1: 2, 2: 2}


def test_work_without_gpu_avoids_the_worker_with_gpus() -> None:
    assert where([demand(1)], [supply(1, resources={"gpu": 4}), supply(2)]) == {1: 2}


def test_pinned_execution_runs_only_on_its_worker() -> None:
    workers = [supply(1, cpu=1), supply(2, cpu=9), supply(3, cpu=9, slots=0)]
    assert where([demand(1, worker=2)], workers) == {1: 2}
    assert where([demand(1, worker=3), demand(2, worker=4), demand(3, worker=1, cpu=2)], workers) == {}


def test_reasons_distinguish_capability_and_capacity() -> None:
    held = plan_placements(
        [demand(1, capabilities=("zos", "cobol")), demand(2, cpu=99)], [supply(1), supply(2, capabilities=("zos",))]
    ).held
    assert held[UUID(int=1)] == "no free worker offers cobol, zos"
    assert held[UUID(int=2)] == "no worker has enough free slots, cpu, memory_mb"


def test_overcommitted_worker_gets_nothing() -> None:
    assert where([demand(1)], [supply(1, cpu=-2)]) == {}


def test_queue_and_job_limits_hold() -> None:
    of_a_queue = [demand(n, queue=(1, 2)) for n in (1, 2, 3)]
    of_a_job = [demand(n, job=(2, 1)) for n in (4, 5)]
    result = plan_placements([*of_a_queue, *of_a_job], [supply(1)])
    assert {a.execution_id.int for a in result.placements} == {1, 2, 4}
    assert result.held == {UUID(int=3): "its queue is at its limit", UUID(int=5): "its job is at its limit"}


def test_unplaced_demand_uses_up_no_limit() -> None:
    assert where([demand(1, cpu=99, queue=(1, 1)), demand(2, queue=(1, 1))], [supply(1)]) == {2: 1}


def test_overdue_demand_reserves_a_worker() -> None:
    busy, small = supply(1, cpu=3, whole_cpu=10), supply(2, cpu=1, whole_cpu=1)
    behind = [demand(n) for n in range(2, 6)]
    assert len(where([demand(1, cpu=8), *behind], [busy, small])) == 4
    result = plan_placements([demand(1, cpu=8, overdue=True), *behind], [busy, small])
    assert [(a.execution_id.int, a.worker_id.int) for a in result.placements] == [(2, 2)]
    assert result.reserved == {UUID(int=1): UUID(int=1)}
    assert "reserved" in result.held[UUID(int=1)]


def test_reserved_worker_gives_others_its_surplus() -> None:
    """Otherwise an execution that waits for a busy gpu would block a pool of one worker."""
    busy = supply(1, slots=4, cpu=3, resources={"gpu": 0, "licence": 2}, whole_cpu=4, whole_resources={"gpu": 1})
    waiting = demand(1, resources={"gpu": 1, "licence": 1}, overdue=True)
    behind = [
        demand(2, resources={"gpu": 1}, overdue=True),
        demand(3, resources={"licence": 2}),
        demand(4),
        demand(5, resources={"licence": 1}, worker=1),
        demand(6),
    ]
    result = plan_placements([waiting, *behind], [busy], explain={UUID(int=4), UUID(int=6)})
    assert [a.execution_id.int for a in result.placements] == [4, 5], "one cpu and one licence are reserved"
    assert result.reserved == {UUID(int=1): UUID(int=1)}
    gates = {n: {g.name: (g.open, g.limit) for g in result.gates[UUID(int=n)]} for n in (4, 6)}
    assert [gates[n]["reservation"][0] for n in (4, 6)] == [True, False]
    assert gates[6]["resource.cpu"] == (True, 1), "it is free, but reserved"


def test_earlier_demands_may_still_use_the_reserved_worker() -> None:
    busy = supply(1, cpu=3, whole_cpu=10)
    assert where([demand(2), demand(1, cpu=8, overdue=True), demand(3)], [busy]) == {2: 1}


def test_no_worker_is_reserved_for_an_impossible_demand() -> None:
    result = plan_placements([demand(1, cpu=11, overdue=True), demand(2)], [supply(1, whole_cpu=10)])
    assert (len(result.placements), result.reserved) == (1, {})


def test_worker_with_the_smallest_shortfall_is_reserved() -> None:
    workers = [supply(1, cpu=2, whole_cpu=10), supply(2, cpu=6, whole_cpu=10), supply(3, cpu=7, whole_cpu=7)]
    assert plan_placements([demand(1, cpu=8, overdue=True)], workers).reserved == {UUID(int=2): UUID(int=1)}


def test_only_a_small_share_of_workers_is_reserved() -> None:
    workers = [supply(n, cpu=2, whole_cpu=10) for n in range(1, 31)]
    assert len(plan_placements([demand(n, cpu=8, overdue=True) for n in range(1, 31)], workers).reserved) == 3


def test_gates_show_the_state_at_the_demands_turn() -> None:
    result = plan_placements([demand(1, cpu=9), demand(2, cpu=2, job=(7, 0))], [supply(1)], explain={UUID(int=2)})
    assert list(result.gates) == [UUID(int=2)]
    gates = {gate.name: gate for gate in result.gates[UUID(int=2)]}
    assert (gates["resource.cpu"].value, gates["resource.cpu"].limit, gates["resource.cpu"].open) == (2, 1, False)
    assert gates["resource.cpu"].holders == [UUID(int=1)]
    assert gates["resource.slots"].open
    assert not gates["job_limit"].open
    assert gates["queue_limit"].open
    assert gates["capability"].limit == 1


def test_gates_name_the_holder_of_a_reservation() -> None:
    ready = [demand(1, cpu=8, overdue=True), demand(2)]
    gates = plan_placements(ready, [supply(1, cpu=3, whole_cpu=10)], explain={UUID(int=2)}).gates[UUID(int=2)]
    assert [gate.holders for gate in gates if gate.name == "reservation"] == [[UUID(int=1)]]
