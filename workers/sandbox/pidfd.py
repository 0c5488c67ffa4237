"""Waiting for and killing a process by descriptor, which unlike a pid is never someone else's."""

import contextlib
import select
import signal

DYING_SECONDS = 10.0  # how long the kernel may take to end a killed pid namespace


def is_over(pidfd: int, seconds: float) -> bool:
    """Wait at most so long; for pid 1 of a pid namespace, over means that nothing in it is left."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def kill(pidfd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def kill_and_wait(pidfd: int) -> bool:
    kill(pidfd)
    return is_over(pidfd, DYING_SECONDS)
