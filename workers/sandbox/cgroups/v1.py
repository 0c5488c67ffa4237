"""A slot's cgroups on the split hierarchies (v1): one per available controller.

Invariant: memory is always among them. The kernel kills single processes only; the run's watcher then kills the run.
"""

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from workers.sandbox.cgroups.files import (
    CPU_PERIOD_MICROSECONDS,
    MIN_QUOTA_MICROSECONDS,
    SLOT_MEMORY_BYTES,
    SLOT_PROCESSES,
    read_field,
    read_file,
    write_file,
)
from workers.sandbox.values import Limits, ResourceUsage

CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")


def find_parents(membership: str, mounts: str) -> dict[str, Path]:
    """Return the worker's own directory in each mounted hierarchy; cpu and cpuacct may share one."""
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


class CgroupV1:
    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = paths
        self._memory = paths["memory"]
        self._written: dict[str, int] = {}
        names = ("memory.memsw.limit_in_bytes", "pids.max", "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpuacct.usage")
        found = {name: str(path / name) for name in names for path in paths.values() if (path / name).exists()}
        self._swap, self._pids = found.get("memory.memsw.limit_in_bytes"), found.get("pids.max")
        self._quota, self._cpu = found.get("cpu.cfs_quota_us"), found.get("cpuacct.usage")
        if "cpu.cfs_period_us" in found:
            self._write(found["cpu.cfs_period_us"], CPU_PERIOD_MICROSECONDS)
        self._idle = 0
        self._cpu_before = self._kills_before = self._memory_before = self._processes_before = 0

    def add(self, pid: int) -> None:
        for path in self._paths.values():
            write_file(f"{path}/cgroup.procs", str(pid))

    def rest(self) -> None:
        self._idle = self._held()

    def settled(self) -> bool:
        return self._held() - self._idle <= SLOT_MEMORY_BYTES

    def limit(self, limits: Limits) -> None:
        ceiling = limits.memory_bytes + limits.disk_bytes + SLOT_MEMORY_BYTES
        bounds = [path for path in (f"{self._memory}/memory.limit_in_bytes", self._swap) if path is not None]
        if ceiling > self._written.get(bounds[0], ceiling):
            bounds.reverse()  # the memory limit may never exceed the limit of memory with swap
        for path in bounds:
            self._write(path, ceiling)
        if self._pids is not None:
            self._write(self._pids, limits.processes + SLOT_PROCESSES)
        write_file(f"{self._memory}/memory.max_usage_in_bytes", "0")
        self._memory_before = int(read_file(f"{self._memory}/memory.usage_in_bytes"))

    def begin(self, limits: Limits) -> None:
        self._kills_before = self._kills()
        self._cpu_before = self._cpu_time()
        self._processes_before = self._resident()
        if self._quota is not None:
            try:
                self._write(self._quota, max(MIN_QUOTA_MICROSECONDS, int(limits.cpus * CPU_PERIOD_MICROSECONDS)))
            except OSError as error:
                # EINVAL: above the worker's own quota, which applies anyway
                if error.errno != errno.EINVAL:
                    raise

    def end(self) -> None:
        if self._quota is not None:
            self._write(self._quota, -1)

    def out_of_memory(self) -> bool:
        return self._kills() > self._kills_before

    def process_memory(self) -> int:
        return max(0, self._resident() - self._processes_before)

    def usage(self) -> ResourceUsage:
        peak = int(read_file(f"{self._memory}/memory.max_usage_in_bytes"))
        return ResourceUsage(
            cpu_seconds=(self._cpu_time() - self._cpu_before) / 1e9 if self._cpu is not None else None,
            peak_memory_bytes=max(0, peak - self._memory_before),
            out_of_memory=self.out_of_memory(),
        )

    def directories(self) -> tuple[Path, ...]:
        return tuple(self._paths.values())

    def _kills(self) -> int:
        return read_field(read_file(f"{self._memory}/memory.oom_control"), "oom_kill")

    def _held(self) -> int:
        text = read_file(f"{self._memory}/memory.stat")
        return read_field(text, "total_rss") + read_field(text, "total_shmem")

    def _resident(self) -> int:
        return read_field(read_file(f"{self._memory}/memory.stat"), "total_rss")

    def _cpu_time(self) -> int:
        return int(read_file(self._cpu)) if self._cpu is not None else 0

    def _write(self, path: str, value: int) -> None:
        if self._written.get(path) != value:
            write_file(path, str(value))
            self._written[path] = value
