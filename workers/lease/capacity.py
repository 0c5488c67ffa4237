"""Detection of the capacity that a worker offers, unless its settings fix it.

Workers that share a machine each offer an equal share of it.
"""

from __future__ import annotations

import math
import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workers.configuration import WorkerSettings
from workers.sandbox.host import Host
from workers.sandbox.runtimes import Interpreter
from workers.sandbox.self_test.runner import SelfTestResult
from workers.sandbox.values import MIB

SLOTS_PER_CPU = 4
# The worker, its host and the sandboxes' own overhead need some memory too.
MEMORY_FRACTION = 0.8
DISK_FRACTION = 0.5


@dataclass(frozen=True, slots=True)
class Capacity:
    host: str
    name: str
    slots: int
    cpu: float
    memory_mb: int
    disk_mb: int
    resources: Mapping[str, int] = field(default_factory=dict)  # set by the operator, never detected


def measure_capacity(settings: WorkerSettings) -> Capacity:
    shared_by = settings.workers_on_host
    cpu = settings.cpu or math.floor(100 * len(os.sched_getaffinity(0)) / shared_by) / 100
    memory_mb = settings.memory_mb or int(_memory_bytes() * MEMORY_FRACTION / shared_by) // MIB
    # /work is a tmpfs: files that runs write there also take memory.
    free_disk = shutil.disk_usage(settings.state_dir).free // MIB / shared_by
    return Capacity(
        host=socket.gethostname(),
        name=settings.name or socket.gethostname(),
        slots=settings.slots or max(2, int(cpu * SLOTS_PER_CPU)),
        cpu=cpu,
        memory_mb=memory_mb,
        disk_mb=settings.disk_mb or min(int(free_disk * DISK_FRACTION), memory_mb),
        resources=settings.resources,
    )


def describe_host(
    host: Host, interpreters: Mapping[str, Interpreter], self_test: SelfTestResult | None = None
) -> dict[str, object]:
    """Describe the whole machine, whatever share of it this worker offers."""
    tested = {} if self_test is None else {"self_test": self_test.summarize()}
    return {
        **tested,
        "bubblewrap": host.version,
        **({} if host.warning is None else {"bubblewrap_warning": host.warning}),
        "cgroups": str(host.cgroup_mode),
        "network": host.network is not None,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_mb": _memory_bytes() // MIB,
        "runtimes": {name: interpreter.version for name, interpreter in interpreters.items()},
    }


def _memory_bytes() -> int:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [
        _read_limit(path) for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
    ]
    return min([physical, *(limit for limit in limits if limit is not None)])


def _read_limit(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
