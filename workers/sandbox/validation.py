"""Refuses what could not become a sandbox, before anything is built and with a sentence for the job's owner."""

import os
import stat
from pathlib import PurePosixPath

from workers.sandbox.errors import SandboxError
from workers.sandbox.slot_process import MOST_DESCRIPTORS
from workers.sandbox.values import Limits, Program

MOST_FILES = MOST_DESCRIPTORS - 32
PAGE_BYTES = 4096
SMALLEST_MEMORY = 4 * 1024 * 1024  # less does not hold bubblewrap and a shell


def validate(program: Program, limits: Limits) -> None:
    """Raise SandboxError if this program cannot be run within these limits at all."""
    if not program.argv or not program.argv[0]:
        raise SandboxError("A program needs at least its own name in argv.")
    texts = [*program.argv, *program.environment, *program.environment.values()]
    if any("\0" in text for text in texts) or any("=" in name or not name for name in program.environment):
        raise SandboxError("Arguments and environment cannot contain NUL, nor names be empty or contain '='.")
    if limits.wall_seconds <= 0 or limits.cpus <= 0 or limits.processes < 1:
        raise SandboxError("Time, CPU and process limits must be above zero.")
    if limits.memory_bytes < SMALLEST_MEMORY or limits.disk_bytes < PAGE_BYTES:
        raise SandboxError("The memory limit must be at least 4 MiB and the disk limit at least 4 KiB.")
    _validate_files(program, limits)
    if program.stdin is not None and _size_of("standard input", program.stdin) > limits.disk_bytes:
        raise SandboxError(
            f"The standard input is larger than the disk limit {limits.disk_bytes}: raise the job's disk."
        )


def _validate_files(program: Program, limits: Limits) -> None:
    if len(program.files) > MOST_FILES:
        raise SandboxError(f"A program can have {MOST_FILES} input files; this one has {len(program.files)}.")
    paths = [PurePosixPath(file.path) for file in program.files]
    for path in paths:
        inside = path.parts and not path.is_absolute() and ".." not in path.parts
        if not inside or "\0" in str(path) or path == PurePosixPath("out"):
            raise SandboxError(f"The input file path {str(path)!r} must name a file inside /work.")
    if len(set(paths)) != len(paths):
        raise SandboxError("Two input files have the same path.")
    needed = 0
    for file in program.files:
        needed += -(-_size_of(f"input file {file.path!r}", file.descriptor) // PAGE_BYTES) * PAGE_BYTES
    if needed > limits.disk_bytes:
        raise SandboxError(
            f"The input files need {needed} bytes, the disk limit is {limits.disk_bytes}: raise the job's disk."
        )


def _size_of(what: str, descriptor: int) -> int:
    try:
        status = os.fstat(descriptor)
    except OSError as error:
        raise SandboxError(f"The {what} is not open: {error}.") from error
    if not stat.S_ISREG(status.st_mode):  # a pipe would block the building for ever
        raise SandboxError(f"The {what} is not a regular file.")
    return status.st_size
