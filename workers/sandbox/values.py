"""The values that go into the sandbox and come out of it.

Invariant: all of them are immutable and none holds anything that must be closed; descriptors in
`InputFile` and `Program` stay the caller's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

WORK = "/work"


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class EndReason(StrEnum):
    EXIT = "exit"  # the program returned an exit code
    SIGNAL = "signal"  # a signal that the sandbox did not send
    TIMEOUT = "timeout"  # wall-clock limit
    OUT_OF_MEMORY = "out_of_memory"  # memory limit, by the kernel or by sampling
    KILLED = "killed"  # `Run.kill()`


@dataclass(frozen=True)
class Limits:
    """`disk_bytes` is the size of `/work` and of `/tmp`, which live in memory.

    Where there is a cgroup the kernel holds processes and files together under
    `memory_bytes + disk_bytes`, and sampling holds the processes alone under `memory_bytes`.
    """

    wall_seconds: float
    memory_bytes: int
    disk_bytes: int
    cpus: float
    processes: int = 256
    open_files: int = 1024
    output_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True)
class InputFile:
    """A regular file to copy to `/work/<path>`; the descriptor's offset is neither used nor moved."""

    path: str
    descriptor: int
    executable: bool = False
    private: bool = False  # readable, and by its owner only


@dataclass(frozen=True)
class Program:
    """The environment is exactly this one, plus the `PWD` that bubblewrap sets.

    Descriptor 3 is open for writing: what it writes there is handed to `on_progress` of `Run.stream`.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)  # it may hold secrets
    files: tuple[InputFile, ...] = ()
    stdin: int | None = None  # a regular file, of which it gets a copy; else there is nothing to read
    network: bool = False  # only on a host that has one to give


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    bubblewrap reports death by signal n as exit code 128+n, as shells do, and the two cannot be told
    apart from outside: 129 to 192 are reported as `SIGNAL`. A program that could not be executed at all
    ends with `EXIT` 127 and the reason on its stderr.
    """

    reason: EndReason
    exit_code: int | None
    signal: int | None
    started_at: datetime
    ended_at: datetime
    cpu_seconds: float | None
    peak_memory_bytes: int | None
    peak_disk_bytes: int  # of /work, /tmp and /dev/shm together, as far as it was seen
    output_truncated: bool
    receipt: Mapping[str, object]  # what it was given, ready for JSON


@dataclass(frozen=True)
class Usage:
    """What a run consumed, as far as this host can tell."""

    cpu_seconds: float | None
    peak_memory_bytes: int | None
    out_of_memory: bool = False
