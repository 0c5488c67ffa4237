"""What the operator says about a worker; what is left out is detected."""

from __future__ import annotations

from dataclasses import dataclass


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
