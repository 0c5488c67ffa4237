"""Current usage of this worker and its machine, read from the kernel in microseconds.

Nothing here raises: a lease is renewed even if the usage cannot be read.
"""

from __future__ import annotations

import os
from pathlib import Path

from jobs.domain.worker_protocol import WorkerUsage
from workers.lease.held_runs import HeldRuns

MEMINFO = Path("/proc/meminfo")


def measure_usage(held: HeldRuns) -> WorkerUsage:
    return WorkerUsage(
        runs=len(held.attempts()),
        taken=held.taken,
        load=_load(),
        memory_available_mb=_available_kilobytes() // 1024,
    )


def _load() -> float:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return 0.0


def _available_kilobytes() -> int:
    try:
        lines = MEMINFO.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), 0)
