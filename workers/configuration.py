"""What the operator says about a worker; what is left out is detected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.sandbox import NetworkRules


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    name: str | None
    pool: str
    slots: int | None
    cpu: float | None
    memory_mb: int | None
    disk_mb: int | None
    state_dir: str
    drain_seconds: float
    cache_mb: int
    resources: Mapping[str, int] = field(default_factory=dict)
    on_host: int = 1  # how many workers share the machine
    allow_weak_sandbox: bool = False  # take work also if the sandbox's own test fails
    network: NetworkRules | None = None  # whether jobs that may have a network get one here, and which; None: none does
