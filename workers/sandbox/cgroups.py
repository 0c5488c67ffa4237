"""Finds where this worker may make cgroups, makes one for each slot, and removes those of dead workers.

Invariant: a cgroup of ours is a child of the worker's own, so a run can never escape a limit that was
put on the worker; its name tells whose it is, so no worker ever removes one that a living worker uses.
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

from workers.sandbox import cgroup_v1, cgroup_v2
from workers.sandbox.values import Limits, Usage

Mode = Literal["v2", "v1", "none"]
PREFIX = "punctual-slot-"
NAME = re.compile(PREFIX + r"(\d+)-(\d+)-(\d+)-\d+")  # whose: pid, its start, and the pid namespace of both
REMOVE_SECONDS = 2.0

_numbers = itertools.count(1)


@dataclass(frozen=True)
class CgroupParents:
    """The directories under which cgroups of slots are made: one for v2, one per controller for v1."""

    mode: Mode = "none"
    directories: Mapping[str, Path] = field(default_factory=dict)


class SlotCgroup(Protocol):
    """The cgroup of one slot, which is always in it: moving a process costs the kernel ten milliseconds.

    What a run used is told from what was counted before it began.
    """

    def add(self, pid: int) -> None:
        """Move a process in."""

    def rest(self) -> None:
        """The slot is made: what it holds now is what it holds whenever it is idle."""

    def settled(self) -> bool:
        """Whether it holds about as much as when it was made."""

    def limit(self, limits: Limits) -> None:
        """Hold what comes to these limits, but not yet to its share of the CPU: first it has to be built."""

    def begin(self, limits: Limits) -> None:
        """From here on it counts, and has its share of the CPU."""

    def end(self) -> None:
        """The run is over: the slot itself is not held to a share of the CPU."""

    def out_of_memory(self) -> bool:
        """Whether the kernel killed something of this run for lack of memory."""

    def process_memory(self) -> int:
        """Bytes of memory of the processes, without files."""

    def usage(self) -> Usage:
        """Totals of this run so far."""

    def directories(self) -> tuple[Path, ...]:
        """What there is to remove."""


def find_parents() -> CgroupParents:
    """Return where cgroups can really be made, preferring v2; tried by making one."""
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
    name = f"{PREFIX}{os.getpid()}-{_start_time(os.getpid())}-{_pid_namespace()}-{next(_numbers)}"
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
    """Kill what is left in it and remove it; a process that is just dying keeps it busy for a moment."""
    deadline = time.monotonic() + REMOVE_SECONDS
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


def clean_leftovers() -> int:
    """Kill and remove the cgroups whose worker no longer lives; return how many were removed."""
    return sum(remove_cgroup((path,)) for path in _our_cgroups() if not _owner_lives(path.name))


def _our_cgroups() -> Iterator[Path]:
    roots = {Path(line.split()[4]) for line in _cgroup_mounts()}
    for root in roots:
        for directory, names, _ in os.walk(root):
            yield from (Path(directory, name) for name in names if NAME.fullmatch(name))


def _cgroup_mounts() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if line.partition(" - ")[2].split(" ")[0] in ("cgroup", "cgroup2")]


def _owner_lives(name: str) -> bool:
    """In another pid namespace, as that of a container, it is for those who are there to say."""
    found = NAME.fullmatch(name)
    return found is not None and (found[3] != _pid_namespace() or _start_time(int(found[1])) == found[2])


def _pid_namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)


def _start_time(pid: int) -> str | None:
    """With the pid this names a process for good: pids come back, start times do not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _kill_processes(directory: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (directory / "cgroup.procs").read_text().split():
            if pid != "0":  # one of another pid namespace; as a target it would be our own process group
                os.kill(int(pid), signal.SIGKILL)
