"""Validation of a program and its limits, with errors for the job's owner."""

import os
import stat
from pathlib import PurePosixPath

from workers.sandbox.errors import SandboxError
from workers.sandbox.slots.slot_process import MAX_DESCRIPTORS
from workers.sandbox.values import MIB, Limits, Program

MAX_INPUT_FILES = MAX_DESCRIPTORS - 32
PAGE_BYTES = 4096
MIN_MEMORY_BYTES = 4 * MIB  # the minimum for bubblewrap and a shell


def validate(program: Program, limits: Limits) -> None:
    """Raise SandboxError if this program can never run within these limits."""
    if not program.argv or not program.argv[0]:
        raise SandboxError("A program needs at least its own name in argv.")
    texts = [*program.argv, *program.environment, *program.environment.values()]
    if any("\0" in text for text in texts) or any("=" in name or not name for name in program.environment):
        raise SandboxError("Arguments and environment cannot contain NUL, nor names be empty or contain '='.")
    if limits.wall_seconds <= 0 or limits.cpus <= 0 or limits.processes < 1:
        raise SandboxError("Time, CPU and process limits must be above zero.")
    if limits.memory_bytes < MIN_MEMORY_BYTES or limits.disk_bytes < PAGE_BYTES:
        raise SandboxError("The memory limit must be at least 4 MiB and the disk limit at least 4 KiB.")
    _validate_files(program, limits)
    if program.stdin is not None and _file_size("standard input", program.stdin) > limits.disk_bytes:
        raise SandboxError(
            f"The standard input is larger than the disk limit {limits.disk_bytes}: raise the job's disk."
        )


def _validate_files(program: Program, limits: Limits) -> None:
    if len(program.files) > MAX_INPUT_FILES:
        raise SandboxError(f"A program can have {MAX_INPUT_FILES} input files; this one has {len(program.files)}.")
    paths = [PurePosixPath(file.path) for file in program.files]
    for path in paths:
        inside = path.parts and not path.is_absolute() and ".." not in path.parts
        if not inside or "\0" in str(path) or path == PurePosixPath("out"):
            raise SandboxError(f"The input file path {str(path)!r} must name a file inside /work.")
    if len(set(paths)) != len(paths):
        raise SandboxError("Two input files have the same path.")
    needed = 0
    for file in program.files:
        needed += -(-_file_size(f"input file {file.path!r}", file.descriptor) // PAGE_BYTES) * PAGE_BYTES
    if needed > limits.disk_bytes:
        raise SandboxError(
            f"The input files need {needed} bytes, the disk limit is {limits.disk_bytes}: raise the job's disk."
        )


def _file_size(name: str, descriptor: int) -> int:
    try:
        status = os.fstat(descriptor)
    except OSError as error:
        raise SandboxError(f"The {name} is not open: {error}.") from error
    if not stat.S_ISREG(status.st_mode):  # a pipe could block the build forever
        raise SandboxError(f"The {name} is not a regular file.")
    return status.st_size
