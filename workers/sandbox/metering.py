"""Metering of a run's memory and files, through its cgroup or by sampling.

Invariant: every run is metered. Without a cgroup, its processes are read from the sandbox's own /proc every 100 ms, so
a shorter burst can exceed the limit; such hosts give this weaker guarantee.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Protocol

from workers.sandbox.cgroups.lifecycle import SlotCgroup
from workers.sandbox.values import Limits, ResourceUsage

MIN_FILES = 16_384
BYTES_PER_FILE = 1024


class Meter(Protocol):
    def exceeded(self) -> bool:
        """Sample now; return whether the run exceeds its memory limit."""

    def usage(self) -> ResourceUsage:
        """Return the usage of the ended run."""


class CgroupMeter:
    def __init__(self, cgroup: SlotCgroup, limits: Limits) -> None:
        self._cgroup = cgroup
        self._limits = limits
        self._sampled: int | None = None

    def exceeded(self) -> bool:
        used = self._cgroup.process_memory()
        self._sampled = max(self._sampled or 0, used)
        return self._cgroup.out_of_memory() or used > self._limits.memory_bytes

    def usage(self) -> ResourceUsage:
        usage = self._cgroup.usage()
        if usage.peak_memory_bytes is None:
            return dataclasses.replace(usage, peak_memory_bytes=self._sampled)
        return usage


class ProcessMeter:
    """Sums the memory of all processes in `proc`, a descriptor of the sandbox's /proc."""

    def __init__(self, proc: int, limits: Limits) -> None:
        self._proc = proc
        self._limits = limits
        self._peak: int | None = None

    def exceeded(self) -> bool:
        pids = [name for name in os.listdir(self._proc) if name.isdigit()]
        resident = sum(self._resident(pid) for pid in pids)
        if resident > self._limits.memory_bytes:
            # forked processes share pages, which resident sizes count once per process
            resident = sum(self._proportional(pid) for pid in pids)
        self._peak = max(self._peak or 0, resident)
        return resident > self._limits.memory_bytes

    def usage(self) -> ResourceUsage:
        return ResourceUsage(cpu_seconds=None, peak_memory_bytes=self._peak)

    def _resident(self, pid: str) -> int:
        """Return private and shared memory, without file pages."""
        names = ("RssAnon", "RssShmem")
        if fields := self._lines(f"{pid}/status", names):
            return sum(fields)
        # If the main thread has exited before the others, the status of the process is empty.
        return max((sum(self._lines(f"{pid}/task/{thread}/status", names)) for thread in self._threads(pid)), default=0)

    def _threads(self, pid: str) -> list[str]:
        try:
            directory = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
        except OSError:
            return []
        try:
            return os.listdir(directory)
        finally:
            os.close(directory)

    def _proportional(self, pid: str) -> int:
        fields = self._lines(f"{pid}/smaps_rollup", ("Pss_Anon", "Pss_Shmem"))
        return sum(fields) if fields else self._resident(pid)

    def _lines(self, path: str, names: tuple[str, ...]) -> list[int]:
        try:
            with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc), "rb") as file:
                text = file.read().decode(errors="replace")
        except OSError:
            return []  # the process has exited, or this kernel denies access
        pairs = (line.split() for line in text.splitlines())
        return [int(parts[1]) * 1024 for parts in pairs if parts and parts[0].rstrip(":") in names]


class StorageMeter:
    """Sums the file systems that a run may write to, and limits their number of files.

    Mount options limit their sizes; the number of files is limited because even an empty one costs the kernel 1 kB.
    """

    def __init__(self, descriptors: Sequence[int], limits: Limits) -> None:
        self._descriptors = descriptors
        self._max_files = max(MIN_FILES, limits.disk_bytes // BYTES_PER_FILE)
        self.peak_bytes = 0

    def exceeded(self) -> bool:
        systems = [os.fstatvfs(descriptor) for descriptor in self._descriptors]
        self.peak_bytes = max(self.peak_bytes, sum((one.f_blocks - one.f_bfree) * one.f_frsize for one in systems))
        return sum(one.f_files - one.f_ffree for one in systems) > self._max_files
