"""Input and output values of the sandbox.

Invariant: all are immutable and own nothing that must be closed; the caller closes the descriptors in `InputFile` and
`Program`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

WORK_DIRECTORY = "/work"
MIB = 1024 * 1024


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


class ExitReason(StrEnum):
    EXIT = "exit"  # the program returned an exit code
    SIGNAL = "signal"  # any signal except the sandbox's own
    TIMEOUT = "timeout"  # wall-clock limit
    OUT_OF_MEMORY = "out_of_memory"  # memory limit, by the kernel or by sampling
    KILLED = "killed"  # `Run.kill()`


@dataclass(frozen=True)
class Limits:
    """Resource limits of a run; `disk_bytes` is the size of `/work` and of `/tmp`, which are in memory.

    With a cgroup, the kernel limits processes and files together to `memory_bytes + disk_bytes`, and sampling limits
    the processes alone to `memory_bytes`.
    """

    wall_seconds: float
    memory_bytes: int
    disk_bytes: int
    cpus: float
    processes: int = 256
    open_files: int = 1024
    output_bytes: int = 64 * MIB


@dataclass(frozen=True)
class InputFile:
    """A regular file to copy to `/work/<path>`; the descriptor's offset is neither used nor moved."""

    path: str
    descriptor: int
    executable: bool = False
    private: bool = False  # readable by its owner only


@dataclass(frozen=True)
class Program:
    """A program to run; its environment is exactly this one, plus the `PWD` that bubblewrap sets.

    Bytes that it writes to descriptor 3 are passed to `on_progress` of `Run.stream`.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)  # it may hold secrets
    files: tuple[InputFile, ...] = ()
    stdin: int | None = None  # a regular file that the program cannot change; None: /dev/null
    network: bool = False  # requires `Host.network`


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run.

    bubblewrap reports signal n as exit code 128+n, as shells do, so exit codes 129 to 192 are reported as `SIGNAL`. A
    program that could not be executed has `EXIT` 127 and the reason on its stderr.
    """

    reason: ExitReason
    exit_code: int | None
    signal: int | None
    started_at: datetime
    ended_at: datetime
    cpu_seconds: float | None
    peak_memory_bytes: int | None
    peak_disk_bytes: int  # sampled, of /work, /tmp and /dev/shm together
    output_truncated: bool
    receipt: Mapping[str, object]  # description of the sandbox, ready for JSON


@dataclass(frozen=True)
class ResourceUsage:
    """Resources that a run used, as far as this host can measure them."""

    cpu_seconds: float | None
    peak_memory_bytes: int | None
    out_of_memory: bool = False
