"""Demands and workers for packing tests, with defaults and Hypothesis strategies."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from hypothesis import strategies as st

from jobs.domain.packing import Demand, Supply, plan_placements


def demand(
    number: int,
    *,
    cpu: float = 1,
    memory_mb: int = 1,
    disk_mb: int = 0,
    capabilities: tuple[str, ...] = (),
    resources: Mapping[str, int] | None = None,
    queue: tuple[int, int | None] | None = None,
    job: tuple[int, int | None] | None = None,
    worker: int | None = None,
    overdue: bool = False,
    owner: tuple[int, int | None] | None = None,
) -> Demand:
    """Build a demand; `queue`, `job` and `owner` are pairs of a number and its free capacity."""
    return Demand(
        UUID(int=number),
        cpu,
        memory_mb,
        disk_mb,
        capabilities,
        resources or {},
        queue_id=None if queue is None else UUID(int=queue[0]),
        queue_capacity=None if queue is None else queue[1],
        job_id=None if job is None else UUID(int=1000 + job[0]),
        job_capacity=None if job is None else job[1],
        worker_id=None if worker is None else UUID(int=worker),
        overdue=overdue,
        owner_id=None if owner is None else owner[0],
        owner_capacity=None if owner is None else owner[1],
    )


def supply(
    number: int,
    *,
    slots: int = 10,
    cpu: float = 10,
    memory_mb: int = 10,
    disk_mb: int = 10,
    capabilities: tuple[str, ...] = (),
    resources: Mapping[str, int] | None = None,
    whole_cpu: float | None = None,
    whole_resources: Mapping[str, int] | None = None,
) -> Supply:
    """Build a worker; with `whole_cpu` its idle capacity is known: this much cpu, and otherwise what is free now."""
    free = {"slots": slots, "memory_mb": memory_mb, "disk_mb": disk_mb, **(resources or {})}
    whole = {} if whole_cpu is None else {**free, "cpu": whole_cpu, **(whole_resources or {})}
    return Supply(
        UUID(int=number), number, capabilities, slots, cpu, memory_mb, disk_mb, resources or {}, whole, f"w{number}"
    )


def where(demands: list[Demand], supplies: list[Supply]) -> dict[int, int]:
    return {a.execution_id.int: a.worker_id.int for a in plan_placements(demands, supplies).placements}


def fits(worker: Supply, got: list[Demand], need: Demand, *, spare: float = 0) -> bool:
    """Return whether one more demand fits, computed independently of the planner."""
    free, used = worker.amounts(), [d.amounts() for d in (*got, need)]
    names = {name for amounts in used for name in amounts} | set(free)
    return (
        set(need.capabilities) <= set(worker.capabilities)
        and need.worker_id in (None, worker.worker_id)
        and all(sum(amounts.get(name, 0) for amounts in used) <= free.get(name, 0) - spare for name in names)
    )


NAMES = st.lists(st.sampled_from(["bash", "gpu", "node"]), unique=True).map(tuple)
RESOURCES = st.dictionaries(st.sampled_from(["gpu", "licence"]), st.integers(1, 3))
# Fixed per number, so that every demand of a queue or a job has the same free capacity.
QUEUES = st.one_of(st.none(), st.sampled_from([(1, 0), (2, 2), (3, 5), (4, None)]))
JOBS = st.one_of(st.none(), st.sampled_from([(1, 1), (2, 3), (3, None)]))
OWNERS = st.one_of(st.none(), st.none(), st.sampled_from([(1, 0), (2, 4), (3, None)]))
DEMANDS = st.lists(
    st.builds(
        demand,
        st.integers(1, 10**6),
        cpu=st.floats(0.01, 8),
        memory_mb=st.integers(1, 8),
        disk_mb=st.integers(0, 8),
        capabilities=NAMES,
        resources=RESOURCES,
        queue=QUEUES,
        job=JOBS,
        owner=OWNERS,
        worker=st.one_of(st.none(), st.none(), st.integers(1, 8)),
    ),
    max_size=40,
    unique_by=lambda d: d.execution_id,
)
SUPPLIES = st.lists(
    st.builds(
        supply,
        st.integers(1, 8) | st.integers(1, 10**6),
        slots=st.integers(0, 6),
        cpu=st.floats(-1, 16),
        memory_mb=st.integers(-1, 16),
        disk_mb=st.integers(-1, 16),
        capabilities=NAMES,
        resources=RESOURCES,
        whole_cpu=st.one_of(st.none(), st.just(16)),
        whole_resources=st.one_of(st.none(), st.just({"gpu": 3, "licence": 3})),
    ),
    max_size=8,
    unique_by=lambda s: s.worker_id,
)
