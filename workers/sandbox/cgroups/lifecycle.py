"""Lifecycle of slot cgroups: find the parent, create one per slot, remove those of dead workers.

Invariant: a slot's cgroup is a child of the worker's own, so that runs stay within the worker's limits. Its name
identifies its worker, so that no worker removes a cgroup in use.
"""

import contextlib
import itertools
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from workers.sandbox.cgroups import v1 as cgroup_v1
from workers.sandbox.cgroups import v2 as cgroup_v2
from workers.sandbox.values import Limits, ResourceUsage

CgroupMode = Literal["v2", "v1", "none"]
CGROUP_PREFIX = "punctual-slot-"
# The owner's pid, its start time and its pid namespace, then a number.
CGROUP_NAME = re.compile(CGROUP_PREFIX + r"(\d+)-(\d+)-(\d+)-\d+")
REMOVE_TIMEOUT_SECONDS = 2.0

_numbers = itertools.count(1)


@dataclass(frozen=True)
class CgroupParents:
    """The parent directories of slot cgroups: one for v2, one per controller for v1."""

    mode: CgroupMode = "none"
    directories: Mapping[str, Path] = field(default_factory=dict)


class SlotCgroup(Protocol):
    """The cgroup of one slot, which never leaves it, as moving a process takes ten milliseconds.

    A run's usage is the difference from the counters before it began.
    """

    def add(self, pid: int) -> None:
        """Move a process in."""

    def rest(self) -> None:
        """Record the memory of the idle slot."""

    def settled(self) -> bool:
        """Return whether the memory is about the same as when the slot was idle."""

    def limit(self, limits: Limits) -> None:
        """Apply all limits but the CPU quota, which would slow down building the sandbox."""

    def begin(self, limits: Limits) -> None:
        """Record the counters and apply the CPU quota."""

    def end(self) -> None:
        """Remove the CPU quota."""

    def out_of_memory(self) -> bool:
        """Return whether the kernel killed a process of this run for lack of memory."""

    def process_memory(self) -> int:
        """Return the memory of the run's processes in bytes, without files."""

    def usage(self) -> ResourceUsage:
        """Return the totals of this run so far."""

    def directories(self) -> tuple[Path, ...]:
        """Return the directories to remove."""


def find_parents() -> CgroupParents:
    """Return where a cgroup can be created, which is tested; v2 is preferred."""
    membership = Path("/proc/self/cgroup").read_text()
    mounts = Path("/proc/self/mountinfo").read_text()
    v2 = cgroup_v2.find_parent(membership, mounts)
    if v2 is not None and _can_make(CgroupParents("v2", {"": v2})):
        return CgroupParents("v2", {"": v2})
    v1 = CgroupParents("v1", cgroup_v1.find_parents(membership, mounts))
    if "memory" in v1.directories and _can_make(v1):
        return v1
    return CgroupParents()


def _can_make(parents: CgroupParents) -> bool:
    cgroup = None
    try:
        cgroup = make_cgroup(parents)
        if cgroup is not None:
            cgroup.limit(Limits(wall_seconds=1, memory_bytes=2**26, disk_bytes=2**20, cpus=1))
    except OSError:
        return False
    finally:
        if cgroup is not None:
            remove_cgroup(cgroup.directories())
    return True


def make_cgroup(parents: CgroupParents) -> SlotCgroup | None:
    """Make a cgroup for one slot, or None where there are none to be had."""
    name = f"{CGROUP_PREFIX}{os.getpid()}-{_start_time(os.getpid())}-{_pid_namespace()}-{next(_numbers)}"
    paths = {controller: parent / name for controller, parent in parents.directories.items()}
    if parents.mode == "none":
        return None
    try:
        for path in paths.values():
            path.mkdir()
        return cgroup_v2.CgroupV2(paths[""]) if parents.mode == "v2" else cgroup_v1.CgroupV1(paths)
    except OSError:
        remove_cgroup(tuple(paths.values()))
        raise


def remove_cgroup(directories: tuple[Path, ...]) -> bool:
    """Kill the remaining processes and remove the cgroup, which stays busy until they have exited."""
    deadline = time.monotonic() + REMOVE_TIMEOUT_SECONDS
    left = list(directories)
    while left:
        try:
            left[0].rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            if time.monotonic() > deadline:
                return False
            _kill_processes(left[0])
            time.sleep(0.001)
            continue
        left.pop(0)
    return True


def remove_stale_cgroups() -> int:
    """Kill and remove the cgroups of dead workers; return how many were removed."""
    return sum(remove_cgroup((path,)) for path in _find_worker_cgroups() if not _is_owner_alive(path.name))


def _find_worker_cgroups() -> Iterator[Path]:
    roots = {Path(line.split()[4]) for line in _cgroup_mounts()}
    for root in roots:
        for directory, names, _ in os.walk(root):
            yield from (Path(directory, name) for name in names if CGROUP_NAME.fullmatch(name))


def _cgroup_mounts() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if line.partition(" - ")[2].split(" ")[0] in ("cgroup", "cgroup2")]


def _is_owner_alive(name: str) -> bool:
    """Return whether the owner may be alive; owners in other pid namespaces, such as containers, always count."""
    found = CGROUP_NAME.fullmatch(name)
    return found is not None and (found[3] != _pid_namespace() or _start_time(int(found[1])) == found[2])


def _pid_namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)


def _start_time(pid: int) -> str | None:
    """Return the start time of a process, which with the pid identifies it: pids are reused."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _kill_processes(directory: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (directory / "cgroup.procs").read_text().split():
            if pid != "0":  # a process of another pid namespace; kill(0) would signal our own process group
                os.kill(int(pid), signal.SIGKILL)
