"""A plan gives no worker more than it has, keeps the order and the limits, and says why something stays."""

from __future__ import annotations

from uuid import UUID

from jobs.planning import plan
from tests.unit.planning_cases import demand, supply, where


def test_nothing_makes_an_empty_plan() -> None:
    assert plan([], [supply(1)]).assignments == []
    assert plan([], []).held == {}


def test_an_assignment_names_the_incarnation_it_was_made_for() -> None:
    (planned,) = plan([demand(1)], [supply(7)]).assignments
    assert (planned.execution_id, planned.worker_id, planned.incarnation) == (UUID(int=1), UUID(int=7), 7)


def test_an_exact_fit_fits_and_then_nothing_is_left() -> None:
    one = supply(1, slots=1, cpu=0.3, memory_mb=5, disk_mb=2)
    twice = [demand(number, cpu=0.1 + 0.2, memory_mb=5, disk_mb=2) for number in (1, 2)]
    result = plan(twice, [one])
    assert [a.execution_id.int for a in result.assignments] == [1]
    assert list(result.held) == [UUID(int=2)]


def test_a_later_small_one_goes_past_a_large_one_that_does_not_fit() -> None:
    assert where([demand(1, cpu=11), demand(2, cpu=1)], [supply(1)]) == {2: 1}


def test_the_first_in_the_order_gets_the_last_place() -> None:
    assert where([demand(2), demand(1)], [supply(1, slots=1)]) == {2: 1}


def test_the_worker_with_the_least_left_over_is_taken() -> None:
    assert where([demand(1, cpu=2)], [supply(1, cpu=9), supply(2, cpu=2), supply(3, cpu=4)]) == {1: 2}


def test_left_over_is_counted_in_shares_of_everything_and_not_in_cpus_alone() -> None:
    small_machine, large_machine = supply(1, cpu=9.9, memory_mb=2), supply(2, cpu=9.8, memory_mb=10)
    assert where([demand(1)], [large_machine, small_machine]) == {1: 1}


def test_only_a_worker_with_every_capability_is_taken() -> None:
    workers = [supply(1, capabilities=("bash",)), supply(2, capabilities=("bash", "gpu")), supply(3)]
    assert where([demand(1, capabilities=("gpu", "bash"))], workers) == {1: 2}


def test_what_can_be_counted_is_given_out_to_the_last_one() -> None:
    workers = [supply(1), supply(2, resources={"gpu": 2})]
    assert where([demand(n, resources={"gpu": 1}) for n in (1, 2, 3)], workers) == {1: 2, 2: 2}


def test_work_that_needs_no_gpu_leaves_the_worker_with_gpus_alone() -> None:
    assert where([demand(1)], [supply(1, resources={"gpu": 4}), supply(2)]) == {1: 2}


def test_a_pinned_execution_runs_there_or_nowhere() -> None:
    workers = [supply(1, cpu=1), supply(2, cpu=9), supply(3, cpu=9, slots=0)]
    assert where([demand(1, worker=2)], workers) == {1: 2}
    assert where([demand(1, worker=3), demand(2, worker=4), demand(3, worker=1, cpu=2)], workers) == {}


def test_reasons_tell_a_missing_capability_from_missing_room() -> None:
    held = plan(
        [demand(1, capabilities=("zos", "cobol")), demand(2, cpu=99)], [supply(1), supply(2, capabilities=("zos",))]
    ).held
    assert held[UUID(int=1)] == "no free worker offers cobol, zos"
    assert held[UUID(int=2)] == "no worker has enough free slots, cpu, memory_mb"


def test_a_worker_that_holds_more_than_it_offers_gets_nothing() -> None:
    assert where([demand(1)], [supply(1, cpu=-2)]) == {}


def test_no_more_of_a_queue_or_a_job_than_there_is_room_for() -> None:
    of_a_queue = [demand(n, queue=(1, 2)) for n in (1, 2, 3)]
    of_a_job = [demand(n, job=(2, 1)) for n in (4, 5)]
    result = plan([*of_a_queue, *of_a_job], [supply(1)])
    assert {a.execution_id.int for a in result.assignments} == {1, 2, 4}
    assert result.held == {UUID(int=3): "its queue is at its limit", UUID(int=5): "its job is at its limit"}


def test_what_finds_no_worker_uses_up_no_limit() -> None:
    assert where([demand(1, cpu=99, queue=(1, 1)), demand(2, queue=(1, 1))], [supply(1)]) == {2: 1}


def test_what_waits_too_long_keeps_a_worker_from_those_behind_it() -> None:
    busy, small = supply(1, cpu=3, whole_cpu=10), supply(2, cpu=1, whole_cpu=1)
    behind = [demand(n) for n in range(2, 6)]
    assert len(where([demand(1, cpu=8), *behind], [busy, small])) == 4
    result = plan([demand(1, cpu=8, overdue=True), *behind], [busy, small])
    assert [(a.execution_id.int, a.worker_id.int) for a in result.assignments] == [(2, 2)]
    assert result.reserved == {UUID(int=1): UUID(int=1)}
    assert "kept" in result.held[UUID(int=1)]


def test_those_before_it_may_still_use_the_worker() -> None:
    busy = supply(1, cpu=3, whole_cpu=10)
    assert where([demand(2), demand(1, cpu=8, overdue=True), demand(3)], [busy]) == {2: 1}


def test_nothing_is_kept_for_what_could_never_run() -> None:
    result = plan([demand(1, cpu=11, overdue=True), demand(2)], [supply(1, whole_cpu=10)])
    assert (len(result.assignments), result.reserved) == (1, {})


def test_the_worker_that_lacks_the_least_is_kept() -> None:
    workers = [supply(1, cpu=2, whole_cpu=10), supply(2, cpu=6, whole_cpu=10), supply(3, cpu=7, whole_cpu=7)]
    assert plan([demand(1, cpu=8, overdue=True)], workers).reserved == {UUID(int=2): UUID(int=1)}


def test_a_small_part_of_the_workers_is_kept_at_most() -> None:
    workers = [supply(n, cpu=2, whole_cpu=10) for n in range(1, 31)]
    assert len(plan([demand(n, cpu=8, overdue=True) for n in range(1, 31)], workers).reserved) == 3


def test_gates_are_told_of_what_is_asked_about_as_they_stand_at_its_turn() -> None:
    result = plan([demand(1, cpu=9), demand(2, cpu=2, job=(7, 0))], [supply(1)], asked={UUID(int=2)})
    assert list(result.gates) == [UUID(int=2)]
    gates = {gate.name: gate for gate in result.gates[UUID(int=2)]}
    assert (gates["resource.cpu"].value, gates["resource.cpu"].limit, gates["resource.cpu"].open) == (2, 1, False)
    assert gates["resource.cpu"].holders == [UUID(int=1)]
    assert gates["resource.slots"].open
    assert not gates["job_limit"].open
    assert gates["queue_limit"].open
    assert gates["capability"].limit == 1


def test_gates_tell_for_whom_a_worker_is_kept() -> None:
    ready = [demand(1, cpu=8, overdue=True), demand(2)]
    gates = plan(ready, [supply(1, cpu=3, whole_cpu=10)], asked={UUID(int=2)}).gates[UUID(int=2)]
    assert [gate.holders for gate in gates if gate.name == "reservation"] == [[UUID(int=1)]]
