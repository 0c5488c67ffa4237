"""Wait for and kill processes by pidfd, which unlike a pid is never reused."""

import contextlib
import select
import signal

EXIT_TIMEOUT_SECONDS = 10.0  # how long the kernel may take to end a killed pid namespace


def wait_for_exit(pidfd: int, seconds: float) -> bool:
    """Return whether the process exits in time; after pid 1 of a pid namespace, all its processes are gone."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def kill(pidfd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def kill_and_wait(pidfd: int) -> bool:
    kill(pidfd)
    return wait_for_exit(pidfd, EXIT_TIMEOUT_SECONDS)
