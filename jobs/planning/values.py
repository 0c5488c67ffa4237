"""What waits, what is free, and what came of it.

Amounts go by their names: `slots`, `cpu`, `memory_mb`, `disk_mb`, and whatever else workers say that they can count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

BUILT_IN = ("slots", "cpu", "memory_mb", "disk_mb")
RESOURCE_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}\Z")
MAX_AMOUNT = 2**31 - 1


def is_resource_name(name: str) -> bool:
    """Whether something that workers count may be called so."""
    return RESOURCE_NAME.match(name) is not None and name not in BUILT_IN


def parse_amounts(text: str) -> dict[str, int]:
    """What an operator says that a worker has: gpu=2,licence=5."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    amounts = {name.strip(): amount.strip() for name, _, amount in pairs}
    if len(amounts) < len(pairs) or not all(
        is_resource_name(name) and amount.isdecimal() and int(amount) <= MAX_AMOUNT for name, amount in amounts.items()
    ):
        raise ValueError("must be names and whole numbers, such as gpu=2,licence=5; cpu and memory have their own")
    return {name: int(amount) for name, amount in amounts.items()}


@dataclass(frozen=True, slots=True)
class Demand:
    execution_id: UUID
    cpu: float
    memory_mb: int
    disk_mb: int
    capabilities: Sequence[str]
    resources: Mapping[str, int] = field(default_factory=dict)
    # How many more of its queue and of its job may be active when the pass begins; None: no limit.
    queue_id: UUID | None = None
    queue_room: int | None = None
    job_id: UUID | None = None
    job_room: int | None = None
    worker_id: UUID | None = None  # only there
    overdue: bool = False  # it has waited so long that a worker is kept for it
    # As of its queue and its job; None: no limit.
    owner_id: int | None = None
    owner_room: int | None = None

    def amounts(self) -> dict[str, float]:
        return {"slots": 1, "cpu": self.cpu, "memory_mb": self.memory_mb, "disk_mb": self.disk_mb, **self.resources}


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
    # All that it has when it is idle. Empty: not known, and it is kept for nobody.
    whole: Mapping[str, float] = field(default_factory=dict)
    name: str = ""

    def amounts(self) -> dict[str, float]:
        free = {"slots": self.slots, "cpu": self.cpu, "memory_mb": self.memory_mb, "disk_mb": self.disk_mb}
        return {**free, **self.resources}

    @property
    def shown(self) -> str:
        return self.name or str(self.worker_id)


@dataclass(frozen=True, slots=True)
class Planned:
    execution_id: UUID
    worker_id: UUID
    incarnation: int


@dataclass(frozen=True, slots=True)
class Gate:
    """One thing that must be so before an execution runs: what it asks for, what there is, and who has the rest."""

    name: str
    open: bool
    words: str
    value: object = None
    limit: object = None
    holders: Sequence[UUID] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    assignments: list[Planned] = field(default_factory=list)
    held: dict[UUID, str] = field(default_factory=dict)
    reserved: dict[UUID, UUID] = field(default_factory=dict)  # a worker, and the execution that it is kept for
    gates: dict[UUID, list[Gate]] = field(default_factory=dict)  # of the executions that were asked about
