"""A plan gives no worker more than it has, keeps the order, and says why something stays."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from jobs.planning import Demand, Supply, plan

EPSILON = 1e-6


def demand(
    number: int, *, cpu: float = 1, memory_mb: int = 1, disk_mb: int = 0, capabilities: tuple[str, ...] = ()
) -> Demand:
    return Demand(UUID(int=number), cpu, memory_mb, disk_mb, capabilities)


def supply(
    number: int,
    *,
    slots: int = 10,
    cpu: float = 10,
    memory_mb: int = 10,
    disk_mb: int = 10,
    capabilities: tuple[str, ...] = (),
) -> Supply:
    return Supply(UUID(int=number), number, capabilities, slots, cpu, memory_mb, disk_mb)


def where(demands: list[Demand], supplies: list[Supply]) -> dict[int, int]:
    return {a.execution_id.int: a.worker_id.int for a in plan(demands, supplies).assignments}


def test_nothing_makes_an_empty_plan() -> None:
    assert plan([], [supply(1)]).assignments == []
    assert plan([], []).held == {}


def test_an_assignment_names_the_incarnation_it_was_made_for() -> None:
    (planned,) = plan([demand(1)], [supply(7)]).assignments
    assert (planned.execution_id, planned.worker_id, planned.incarnation) == (UUID(int=1), UUID(int=7), 7)


def test_an_exact_fit_fits_and_then_nothing_is_left() -> None:
    one = supply(1, slots=1, cpu=0.3, memory_mb=5, disk_mb=2)
    need = {"cpu": 0.1 + 0.2, "memory_mb": 5, "disk_mb": 2}
    result = plan([demand(1, **need), demand(2, **need)], [one])  # type: ignore[arg-type]
    assert [a.execution_id.int for a in result.assignments] == [1]
    assert list(result.held) == [UUID(int=2)]


def test_a_later_small_one_goes_past_a_large_one_that_does_not_fit() -> None:
    assert where([demand(1, cpu=11), demand(2, cpu=1)], [supply(1)]) == {2: 1}


def test_the_first_in_the_order_gets_the_last_place() -> None:
    assert where([demand(2), demand(1)], [supply(1, slots=1)]) == {2: 1}


def test_the_worker_with_the_least_left_over_is_taken() -> None:
    assert where([demand(1, cpu=2)], [supply(1, cpu=9), supply(2, cpu=2), supply(3, cpu=4)]) == {1: 2}


def test_only_a_worker_with_every_capability_is_taken() -> None:
    workers = [supply(1, capabilities=("bash",)), supply(2, capabilities=("bash", "gpu")), supply(3)]
    assert where([demand(1, capabilities=("gpu", "bash"))], workers) == {1: 2}


def test_reasons_tell_a_missing_capability_from_missing_room() -> None:
    held = plan(
        [demand(1, capabilities=("zos", "cobol")), demand(2, cpu=99)], [supply(1), supply(2, capabilities=("zos",))]
    ).held
    assert held[UUID(int=1)] == "no free worker offers cobol, zos"
    assert "enough" in held[UUID(int=2)]


def test_a_worker_that_holds_more_than_it_offers_gets_nothing() -> None:
    assert where([demand(1)], [supply(1, cpu=-2)]) == {}


NAMES = st.lists(st.sampled_from(["bash", "gpu", "node"]), unique=True).map(tuple)
DEMANDS = st.lists(
    st.builds(
        demand,
        st.integers(1, 10**6),
        cpu=st.floats(0.01, 8),
        memory_mb=st.integers(1, 8),
        disk_mb=st.integers(0, 8),
        capabilities=NAMES,
    ),
    max_size=30,
    unique_by=lambda d: d.execution_id,
)
SUPPLIES = st.lists(
    st.builds(
        supply,
        st.integers(1, 10**6),
        slots=st.integers(0, 6),
        cpu=st.floats(-1, 16),
        memory_mb=st.integers(-1, 16),
        disk_mb=st.integers(-1, 16),
        capabilities=NAMES,
    ),
    max_size=6,
    unique_by=lambda s: s.worker_id,
)


@given(DEMANDS, SUPPLIES)
def test_no_plan_gives_a_worker_more_than_it_has(demands: list[Demand], supplies: list[Supply]) -> None:
    result = plan(demands, supplies)
    by_id = {d.execution_id: d for d in demands}
    given_to: dict[UUID, list[Demand]] = defaultdict(list)
    for planned in result.assignments:
        given_to[planned.worker_id].append(by_id[planned.execution_id])
    for worker in supplies:
        got = given_to.pop(worker.worker_id, [])
        if got:
            assert len(got) <= worker.slots
            assert sum(d.cpu for d in got) <= worker.cpu + EPSILON
            assert sum(d.memory_mb for d in got) <= worker.memory_mb
            assert sum(d.disk_mb for d in got) <= worker.disk_mb
            assert all(set(d.capabilities) <= set(worker.capabilities) for d in got)
    assert not given_to, "only to workers that were offered"


@given(DEMANDS, SUPPLIES)
def test_every_demand_is_placed_once_or_held_with_a_reason(demands: list[Demand], supplies: list[Supply]) -> None:
    result = plan(demands, supplies)
    placed = [a.execution_id for a in result.assignments]
    assert sorted([*placed, *result.held]) == sorted(d.execution_id for d in demands)
    assert all(result.held.values())


@given(DEMANDS, SUPPLIES)
def test_whatever_stays_fits_nowhere_once_the_plan_is_made(demands: list[Demand], supplies: list[Supply]) -> None:
    result = plan(demands, supplies)
    by_id = {d.execution_id: d for d in demands}
    for held in result.held:
        need = by_id[held]
        for worker in supplies:
            got = [by_id[a.execution_id] for a in result.assignments if a.worker_id == worker.worker_id]
            assert not (
                set(need.capabilities) <= set(worker.capabilities)
                and len(got) < worker.slots
                and sum(d.cpu for d in got) + need.cpu <= worker.cpu - EPSILON
                and sum(d.memory_mb for d in got) + need.memory_mb <= worker.memory_mb
                and sum(d.disk_mb for d in got) + need.disk_mb <= worker.disk_mb
            )
