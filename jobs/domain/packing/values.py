"""Input and output of a placement pass: demands, supplies and the plan.

Amounts are named: `slots`, `cpu`, `memory_mb`, `disk_mb`, and the custom resources that workers declare.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

BUILT_IN_RESOURCES = ("slots", "cpu", "memory_mb", "disk_mb")
RESOURCE_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}\Z")
MAX_AMOUNT = 2**31 - 1

LimitKey = UUID | int | None  # what a limit applies to: a queue, a job or an owner


def is_resource_name(name: str) -> bool:
    """Return whether a custom resource may have this name."""
    return RESOURCE_NAME.match(name) is not None and name not in BUILT_IN_RESOURCES


def parse_amounts(text: str) -> dict[str, int]:
    """Parse an operator's list of a worker's custom resources, such as gpu=2,licence=5."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    amounts = {name.strip(): amount.strip() for name, _, amount in pairs}
    if len(amounts) < len(pairs) or not all(
        is_resource_name(name) and amount.isdecimal() and int(amount) <= MAX_AMOUNT for name, amount in amounts.items()
    ):
        raise ValueError(
            "must be names and whole numbers, such as gpu=2,licence=5; cpu and memory have their own settings"
        )
    return {name: int(amount) for name, amount in amounts.items()}


@dataclass(frozen=True, slots=True)
class Demand:
    execution_id: UUID
    cpu: float
    memory_mb: int
    disk_mb: int
    capabilities: Sequence[str]
    resources: Mapping[str, int] = field(default_factory=dict)
    # How many more executions of the queue, the job and the owner may be active; None: no limit.
    queue_id: UUID | None = None
    queue_capacity: int | None = None
    job_id: UUID | None = None
    job_capacity: int | None = None
    worker_id: UUID | None = None  # pinned to this worker
    overdue: bool = False  # has waited long enough for a reservation
    owner_id: int | None = None
    owner_capacity: int | None = None

    def amounts(self) -> dict[str, float]:
        return {"slots": 1, "cpu": self.cpu, "memory_mb": self.memory_mb, "disk_mb": self.disk_mb, **self.resources}

    @property
    def shape(self) -> tuple[object, ...]:
        """Key that is equal for demands that fit the same workers."""
        resources = tuple(self.resources.items())
        return (self.cpu, self.memory_mb, self.disk_mb, tuple(self.capabilities), resources, self.worker_id)


@dataclass(frozen=True, slots=True)
class Supply:
    worker_id: UUID
    incarnation: int
    capabilities: Sequence[str]
    slots: int
    cpu: float
    memory_mb: int
    disk_mb: int
    resources: Mapping[str, int] = field(default_factory=dict)
    # Capacity when idle. Empty: unknown, and the worker is never reserved.
    total: Mapping[str, float] = field(default_factory=dict)
    name: str = ""

    def amounts(self) -> dict[str, float]:
        free = {"slots": self.slots, "cpu": self.cpu, "memory_mb": self.memory_mb, "disk_mb": self.disk_mb}
        return {**free, **self.resources}

    @property
    def label(self) -> str:
        return self.name or str(self.worker_id)


@dataclass(frozen=True, slots=True)
class PlannedPlacement:
    execution_id: UUID
    worker_id: UUID
    incarnation: int


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition for an execution to run: what it needs, what is available, and who holds the rest."""

    name: str
    open: bool
    words: str
    value: object = None
    limit: object = None
    holders: Sequence[UUID] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    placements: list[PlannedPlacement] = field(default_factory=list)
    held: dict[UUID, str] = field(default_factory=dict)
    reserved: dict[UUID, UUID] = field(default_factory=dict)  # the reserving execution by worker
    gates: dict[UUID, list[Gate]] = field(default_factory=dict)  # of the executions in `explain`
    # One demand of each shape that fits nowhere; an overdue one also found no worker to reserve.
    tried: list[Demand] = field(default_factory=list)
