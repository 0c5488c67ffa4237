"""Finds where this worker may make cgroups, makes one for each run, and removes those of dead workers.

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
PREFIX = "punctual-run-"
NAME = re.compile(PREFIX + r"(\d+)-(\d+)-\d+")
REMOVE_SECONDS = 2.0

_numbers = itertools.count(1)


@dataclass(frozen=True)
class CgroupParents:
    """The directories under which run cgroups are made: one for v2, one per controller for v1."""

    mode: Mode = "none"
    directories: Mapping[str, Path] = field(default_factory=dict)


class RunCgroup(Protocol):
    """The cgroup of one run."""

    def add(self, pid: int) -> None:
        """Move a process in."""

    def out_of_memory(self) -> bool:
        """Whether the kernel killed something in it for lack of memory."""

    def process_memory(self) -> int:
        """Bytes of memory of the processes, without files."""

    def usage(self) -> Usage:
        """Totals so far."""

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
    limits = Limits(wall_seconds=1, memory_bytes=2**26, disk_bytes=2**20, cpus=1)
    try:
        cgroup = make_cgroup(parents, limits)
    except OSError:
        return False
    if cgroup is not None:
        remove_cgroup(cgroup.directories())
    return True


def make_cgroup(parents: CgroupParents, limits: Limits) -> RunCgroup | None:
    """Make a limited cgroup for one run, or None where there are none to be had."""
    name = f"{PREFIX}{os.getpid()}-{_start_time(os.getpid())}-{next(_numbers)}"
    paths = {controller: parent / name for controller, parent in parents.directories.items()}
    if parents.mode == "none":
        return None
    try:
        for path in paths.values():
            path.mkdir()
        if parents.mode == "v2":
            return cgroup_v2.CgroupV2.limited(paths[""], limits)
        return cgroup_v1.CgroupV1.limited(paths, limits)
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
    """Kill and remove the run cgroups whose worker no longer lives; return how many were removed."""
    return sum(remove_cgroup((path,)) for path in _run_cgroups() if not _owner_lives(path.name))


def _run_cgroups() -> Iterator[Path]:
    roots = {Path(line.split()[4]) for line in _cgroup_mounts()}
    for root in roots:
        for directory, names, _ in os.walk(root):
            yield from (Path(directory, name) for name in names if NAME.fullmatch(name))


def _cgroup_mounts() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if line.partition(" - ")[2].split(" ")[0] in ("cgroup", "cgroup2")]


def _owner_lives(name: str) -> bool:
    found = NAME.fullmatch(name)
    return found is not None and _start_time(int(found[1])) == found[2]


def _start_time(pid: int) -> str | None:
    """With the pid this names a process for good: pids come back, start times do not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _kill_processes(directory: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (directory / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
