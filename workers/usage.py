"""What this worker and its machine use right now, read from the kernel in microseconds.

Nothing here fails: a lease is renewed whether or not its worker can say how busy it is.
"""

from __future__ import annotations

import os
from pathlib import Path

from jobs.protocol import Usage
from workers.held_runs import HeldRuns

MEMINFO = Path("/proc/meminfo")


def measure_usage(held: HeldRuns) -> Usage:
    return Usage(
        runs=len(held.pairs()),
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
