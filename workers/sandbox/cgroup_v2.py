"""A run's cgroup on the unified hierarchy (v2).

Invariant: swap is off and the group dies as one, so a run is either under its limit or over.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from workers.sandbox.values import Limits, Usage

AGENT = "punctual-agent"  # the leaf for the worker itself: a cgroup with controllers may hold no process
CONTROLLERS = ("memory", "pids", "cpu")
CPU_PERIOD = 100_000


def find_parent(membership: str, mounts: str) -> Path | None:
    """Return the worker's own cgroup, ready to have children with limits, or None."""
    own = next((line[3:] for line in membership.splitlines() if line.startswith("0::")), None)
    mount = next(
        (line.split() for line in mounts.splitlines() if line.partition(" - ")[2].startswith("cgroup2 ")),
        None,
    )
    if own is None or mount is None:
        return None
    parent = Path(mount[4]) / os.path.relpath(own, mount[3])
    if parent.name == AGENT:
        parent = parent.parent
    try:
        wanted = [name for name in CONTROLLERS if name in (parent / "cgroup.controllers").read_text().split()]
        if "memory" not in wanted:
            return None
        enabled = (parent / "cgroup.subtree_control").read_text().split()
        if not set(wanted) <= set(enabled):
            _enable(parent, wanted)
    except OSError:
        return None
    return parent


def _enable(parent: Path, controllers: list[str]) -> None:
    order = " ".join(f"+{name}" for name in controllers)
    try:
        (parent / "cgroup.subtree_control").write_text(order)
    except OSError:
        # EBUSY: processes sit in it; only a worker that is alone there may move, others are not ours
        if (parent / "cgroup.procs").read_text().split() != [str(os.getpid())]:
            raise
        (parent / AGENT).mkdir(exist_ok=True)
        (parent / AGENT / "cgroup.procs").write_text(str(os.getpid()))
        (parent / "cgroup.subtree_control").write_text(order)


@dataclass(frozen=True)
class CgroupV2:
    path: Path

    @classmethod
    def limited(cls, path: Path, limits: Limits) -> "CgroupV2":
        (path / "memory.max").write_text(str(limits.memory_bytes + limits.disk_bytes))
        (path / "memory.oom.group").write_text("1")
        optional = {
            "memory.swap.max": "0",
            "pids.max": str(limits.processes + 1),
            "cpu.max": f"{int(limits.cpus * CPU_PERIOD)} {CPU_PERIOD}",
        }
        for name, value in optional.items():
            if (path / name).exists():
                (path / name).write_text(value)
        return cls(path)

    def add(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))

    def out_of_memory(self) -> bool:
        return self._field("memory.events", "oom_kill") > 0

    def process_memory(self) -> int:
        return self._field("memory.stat", "anon")

    def usage(self) -> Usage:
        peak = self.path / "memory.peak"  # since Linux 5.19
        return Usage(
            cpu_seconds=self._field("cpu.stat", "usage_usec") / 1e6,
            peak_memory_bytes=int(peak.read_text()) if peak.exists() else None,
            out_of_memory=self.out_of_memory(),
        )

    def directories(self) -> tuple[Path, ...]:
        return (self.path,)

    def _field(self, file: str, name: str) -> int:
        return read_field((self.path / file).read_text(), name)


def read_field(text: str, name: str) -> int:
    """Read one line of a flat-keyed cgroup file; a kernel that lacks the line counts nothing."""
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(name + " ")), 0)
