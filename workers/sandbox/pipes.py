"""Pipes between the worker and one sandbox.

Invariant: the worker's ends never block, and its copies of the far ends are closed once bubblewrap has them.
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
    progress: int  # the program's descriptor 3
    progress_far: int
    status: int  # bubblewrap writes the program's exit code
    status_far: int
    hold: int  # the program starts when a byte is written here
    hold_far: int  # open for reading and writing, so that only a byte starts the program, not the worker's exit

    @classmethod
    def open(cls, owner: int | None) -> "Pipes":
        """`owner`: the program's uid on this host, if it is not the worker's."""
        pairs: list[int] = []
        try:
            for _ in range(4):
                pairs += os.pipe2(os.O_CLOEXEC)
            reader, hold = os.pipe2(os.O_CLOEXEC)
            pairs.append(hold)
            try:
                pairs.append(os.open(f"/proc/self/fd/{reader}", os.O_RDWR | os.O_CLOEXEC))
            finally:
                os.close(reader)
            if owner is not None:
                for descriptor in (pairs[1], pairs[3], pairs[5]):
                    os.fchown(descriptor, owner, -1)  # otherwise the program cannot open /dev/stdout
        except OSError:
            for descriptor in pairs:
                os.close(descriptor)
            raise
        stdout, stdout_far, stderr, stderr_far, progress, progress_far, status, status_far, hold, hold_far = pairs
        for descriptor in (stdout, stderr, progress, status):
            os.set_blocking(descriptor, False)
        far = {"stdout_far": stdout_far, "stderr_far": stderr_far, "progress_far": progress_far}
        near = {"stdout": stdout, "stderr": stderr, "progress": progress}
        return cls(**near, **far, status=status, status_far=status_far, hold=hold, hold_far=hold_far)

    def release(self) -> None:
        # the pidfd reports a sandbox that has already died
        with contextlib.suppress(BrokenPipeError):
            os.write(self.hold, b"\n")

    def close_far_ends(self) -> None:
        for descriptor in (self.stdout_far, self.stderr_far, self.progress_far, self.status_far, self.hold_far):
            os.close(descriptor)

    def close(self) -> None:
        for descriptor in (self.stdout, self.stderr, self.progress, self.status, self.hold):
            os.close(descriptor)


def read_chunk(descriptor: int) -> bytes | None:
    """Return the available bytes, b"" at the end of the stream, None if there are none yet."""
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except BlockingIOError:
        return None


def read_all(descriptor: int) -> bytes:
    """Return everything written so far."""
    parts = []
    while part := read_chunk(descriptor):
        parts.append(part)
    return b"".join(parts)
