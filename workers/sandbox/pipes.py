"""The pipes between a worker and one sandbox.

Invariant: the worker's ends never block, and the far ends are closed here as soon as bubblewrap has them.
"""

import contextlib
import os
from dataclasses import dataclass

CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True)
class Pipes:
    stdout: int
    stdout_far: int
    stderr: int
    stderr_far: int
    status: int  # bubblewrap writes what became of the program
    status_far: int
    hold: int  # the program starts when a byte is written here
    hold_far: int

    @classmethod
    def open(cls) -> "Pipes":
        pairs: list[int] = []
        try:
            for _ in range(4):
                pairs += os.pipe2(os.O_CLOEXEC)
        except OSError:
            for descriptor in pairs:
                os.close(descriptor)
            raise
        stdout, stdout_far, stderr, stderr_far, status, status_far, hold_far, hold = pairs
        for descriptor in (stdout, stderr, status):
            os.set_blocking(descriptor, False)
        return cls(stdout, stdout_far, stderr, stderr_far, status, status_far, hold, hold_far)

    def release(self) -> None:
        # a sandbox that died while it waited is reported by its pidfd
        with contextlib.suppress(BrokenPipeError):
            os.write(self.hold, b"\n")

    def close_far_ends(self) -> None:
        for descriptor in (self.stdout_far, self.stderr_far, self.status_far, self.hold_far):
            os.close(descriptor)

    def close(self) -> None:
        for descriptor in (self.stdout, self.stderr, self.status, self.hold):
            os.close(descriptor)


def read_chunk(descriptor: int) -> bytes | None:
    """Return what is there now, b"" at the end of the stream, None if there is nothing yet."""
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except BlockingIOError:
        return None


def read_all(descriptor: int) -> bytes:
    """Return all that was written so far."""
    parts = []
    while part := read_chunk(descriptor):
        parts.append(part)
    return b"".join(parts)
