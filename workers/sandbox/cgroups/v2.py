"""A slot's cgroup on the unified hierarchy (v2).

Invariant: swap is off. The kernel must not kill the group as a whole, which includes the slot, but single processes;
the run's watcher then kills the run.
"""

import contextlib
import os
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

AGENT_CGROUP = "punctual-agent"  # leaf for the worker itself: a cgroup with controllers may not contain processes
CONTROLLERS = ("memory", "pids", "cpu")


def find_parent(membership: str, mounts: str) -> Path | None:
    """Return the worker's own cgroup with controllers enabled for children, or None."""
    own = next((line[3:] for line in membership.splitlines() if line.startswith("0::")), None)
    mount = next(
        (line.split() for line in mounts.splitlines() if line.partition(" - ")[2].startswith("cgroup2 ")),
        None,
    )
    if own is None or mount is None:
        return None
    parent = Path(mount[4]) / os.path.relpath(own, mount[3])
    if parent.name == AGENT_CGROUP:
        parent = parent.parent
    try:
        wanted = [name for name in CONTROLLERS if name in (parent / "cgroup.controllers").read_text().split()]
        if "memory" not in wanted:
            return None
        enabled = (parent / "cgroup.subtree_control").read_text().split()
        if not set(wanted) <= set(enabled):
            _enable_controllers(parent, wanted)
    except OSError:
        return None
    return parent


def _enable_controllers(parent: Path, controllers: list[str]) -> None:
    order = " ".join(f"+{name}" for name in controllers)
    try:
        (parent / "cgroup.subtree_control").write_text(order)
    except OSError:
        # EBUSY: it contains processes; move the worker to a leaf if it is the only one
        if (parent / "cgroup.procs").read_text().split() != [str(os.getpid())]:
            raise
        (parent / AGENT_CGROUP).mkdir(exist_ok=True)
        (parent / AGENT_CGROUP / "cgroup.procs").write_text(str(os.getpid()))
        (parent / "cgroup.subtree_control").write_text(order)


class CgroupV2:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._cpu_before = self._kills_before = self._memory_before = self._processes_before = 0
        self._lifetime_peak_before = self._idle = 0
        self._peak: int | None = None  # open memory.peak, which since Linux 6.12 has a peak per descriptor

    def add(self, pid: int) -> None:
        write_file(f"{self._path}/cgroup.procs", str(pid))

    def rest(self) -> None:
        self._idle = self._held()

    def settled(self) -> bool:
        return self._held() - self._idle <= SLOT_MEMORY_BYTES

    def limit(self, limits: Limits) -> None:
        write_file(f"{self._path}/memory.max", str(limits.memory_bytes + limits.disk_bytes + SLOT_MEMORY_BYTES))
        self._write_if_there("memory.swap.max", "0")
        self._write_if_there("pids.max", str(limits.processes + SLOT_PROCESSES))
        self._memory_before = int(read_file(f"{self._path}/memory.current"))
        self._lifetime_peak_before = self._lifetime_peak()
        self._close_peak()
        self._peak = _open_own_peak(self._path / "memory.peak")

    def begin(self, limits: Limits) -> None:
        self._kills_before = self._field("memory.events", "oom_kill")
        self._cpu_before = self._field("cpu.stat", "usage_usec")
        self._processes_before = self._field("memory.stat", "anon")
        self._write_if_there(
            "cpu.max",
            f"{max(MIN_QUOTA_MICROSECONDS, int(limits.cpus * CPU_PERIOD_MICROSECONDS))} {CPU_PERIOD_MICROSECONDS}",
        )

    def end(self) -> None:
        self._write_if_there("cpu.max", f"max {CPU_PERIOD_MICROSECONDS}")

    def out_of_memory(self) -> bool:
        return self._field("memory.events", "oom_kill") > self._kills_before

    def process_memory(self) -> int:
        return max(0, self._field("memory.stat", "anon") - self._processes_before)

    def usage(self) -> ResourceUsage:
        peak = None
        if self._peak is not None:
            peak = int(os.pread(self._peak, 64, 0))
        elif self._lifetime_peak() > self._lifetime_peak_before:
            peak = self._lifetime_peak()  # it rose during this run
        return ResourceUsage(
            cpu_seconds=(self._field("cpu.stat", "usage_usec") - self._cpu_before) / 1e6,
            peak_memory_bytes=max(0, peak - self._memory_before) if peak is not None else None,
            out_of_memory=self.out_of_memory(),
        )

    def directories(self) -> tuple[Path, ...]:
        self._close_peak()
        return (self._path,)

    def _held(self) -> int:
        return self._field("memory.stat", "anon") + self._field("memory.stat", "shmem")

    def _lifetime_peak(self) -> int:
        with contextlib.suppress(FileNotFoundError):  # since Linux 5.19
            return int(read_file(f"{self._path}/memory.peak"))
        return 0

    def _close_peak(self) -> None:
        if self._peak is not None:
            os.close(self._peak)
            self._peak = None

    def _write_if_there(self, name: str, value: str) -> None:
        if (self._path / name).exists():
            write_file(f"{self._path}/{name}", value)

    def _field(self, file: str, name: str) -> int:
        return read_field(read_file(f"{self._path}/{file}"), name)


def _open_own_peak(path: Path) -> int | None:
    """Open memory.peak with a reset peak; None on kernels with only one peak per cgroup."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        os.write(descriptor, b"reset\n")
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
