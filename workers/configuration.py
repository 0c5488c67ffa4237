"""Worker settings chosen by the operator; None means detect it on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.sandbox.network.rules import NetworkRules


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
    workers_on_host: int = 1  # how many workers share the machine
    allow_weak_sandbox: bool = False  # accept work even if the sandbox self-test fails
    network: NetworkRules | None = None  # None: no run on this worker gets a network
