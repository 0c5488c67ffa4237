"""A run's cgroups on the split hierarchies (v1): one for each controller the host has.

Invariant: memory is always among them; where v1 cannot kill a group as one, the run is killed by its
watcher as soon as the kernel has killed any part of it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workers.sandbox.cgroup_v2 import read_field
from workers.sandbox.values import Limits, Usage

CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
CPU_PERIOD = 100_000
SMALLEST_QUOTA = 1_000  # the kernel refuses less


def find_parents(membership: str, mounts: str) -> dict[str, Path]:
    """Return the worker's own directory in each hierarchy that is mounted; cpu and cpuacct may share one."""
    own = {}
    for line in membership.splitlines():
        _, names, path = line.split(":", 2)
        own.update(dict.fromkeys(names.split(","), path))
    parents: dict[str, Path] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind != "cgroup":
            continue
        root, point = before.split()[3:5]
        for name in CONTROLLERS:
            if name in own and name in options.split(","):
                directory = Path(point) / os.path.relpath(own[name], root)
                if directory not in parents.values():
                    parents[name] = directory
    return {name: path for name, path in parents.items() if os.access(path, os.W_OK)}


@dataclass(frozen=True)
class CgroupV1:
    paths: Mapping[str, Path]

    @classmethod
    def limited(cls, paths: Mapping[str, Path], limits: Limits) -> "CgroupV1":
        memory = paths["memory"]
        ceiling = str(limits.memory_bytes + limits.disk_bytes)
        (memory / "memory.limit_in_bytes").write_text(ceiling)
        if (memory / "memory.memsw.limit_in_bytes").exists():
            (memory / "memory.memsw.limit_in_bytes").write_text(ceiling)
        others = {
            "pids.max": str(limits.processes + 1),
            "cpu.cfs_period_us": str(CPU_PERIOD),
            "cpu.cfs_quota_us": str(max(SMALLEST_QUOTA, int(limits.cpus * CPU_PERIOD))),
        }
        for name, value in others.items():
            for path in paths.values():
                if (path / name).exists():
                    (path / name).write_text(value)
        return cls(paths)

    def add(self, pid: int) -> None:
        for path in self.paths.values():
            (path / "cgroup.procs").write_text(str(pid))

    def out_of_memory(self) -> bool:
        return read_field((self.paths["memory"] / "memory.oom_control").read_text(), "oom_kill") > 0

    def process_memory(self) -> int:
        return read_field((self.paths["memory"] / "memory.stat").read_text(), "total_rss")

    def usage(self) -> Usage:
        accounts = [path / "cpuacct.usage" for path in self.paths.values() if (path / "cpuacct.usage").exists()]
        return Usage(
            cpu_seconds=int(accounts[0].read_text()) / 1e9 if accounts else None,
            peak_memory_bytes=int((self.paths["memory"] / "memory.max_usage_in_bytes").read_text()),
            out_of_memory=self.out_of_memory(),
        )

    def directories(self) -> tuple[Path, ...]:
        return tuple(self.paths.values())
