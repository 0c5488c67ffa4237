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
    progress: int  # the program's descriptor 3
    progress_far: int
    status: int  # bubblewrap writes what became of the program
    status_far: int
    hold: int  # the program starts when a byte is written here
    hold_far: int

    @classmethod
    def open(cls, owner: int | None) -> "Pipes":
        """`owner` is the uid that the program has on this host, if not the worker's."""
        pairs: list[int] = []
        try:
            for _ in range(5):
                pairs += os.pipe2(os.O_CLOEXEC)
            if owner is not None:
                for descriptor in (pairs[1], pairs[3], pairs[5]):
                    os.fchown(descriptor, owner, -1)  # else opening /dev/stdout and its like is refused to it
        except OSError:
            for descriptor in pairs:
                os.close(descriptor)
            raise
        stdout, stdout_far, stderr, stderr_far, progress, progress_far, status, status_far, hold_far, hold = pairs
        for descriptor in (stdout, stderr, progress, status):
            os.set_blocking(descriptor, False)
        far = {"stdout_far": stdout_far, "stderr_far": stderr_far, "progress_far": progress_far}
        near = {"stdout": stdout, "stderr": stderr, "progress": progress}
        return cls(**near, **far, status=status, status_far=status_far, hold=hold, hold_far=hold_far)

    def release(self) -> None:
        # a sandbox that died while it waited is reported by its pidfd
        with contextlib.suppress(BrokenPipeError):
            os.write(self.hold, b"\n")

    def close_far_ends(self) -> None:
        for descriptor in (self.stdout_far, self.stderr_far, self.progress_far, self.status_far, self.hold_far):
            os.close(descriptor)

    def close(self) -> None:
        for descriptor in (self.stdout, self.stderr, self.progress, self.status, self.hold):
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
