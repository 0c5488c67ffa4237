"""Guardian process: kills a worker's sandboxes when its lease is no longer renewed.

It exists because a frozen or starved worker cannot stop its runs itself. Invariant: guarded sandboxes are killed
`limit_seconds` after the last reported renewal was sent, and at once when the worker exits.

Run as a script (`python -I -S`), hence the standard library only. Each request is one packet, with the pidfd of a
sandbox's pid 1 for GUARD; each response is one byte. It keeps the worker's uid, so it may signal the same processes.
"""

import contextlib
import math
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence

REQUEST = struct.Struct("=cqd")  # kind, the worker's number of the sandbox, when the renewal was sent
LEASE_RENEWED, GUARD, WAS_KILLED = b"t", b"g", b"a"
YES, NO = b"y", b"n"
# A suspended machine stops a poll timeout, but not the clock below.
CHECK_INTERVAL_SECONDS = 0.25


def boottime() -> float:
    """Return a clock that includes suspend, as leases do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class GuardedSandboxes:
    """The guarded sandboxes and their common deadline."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self._renewed_at = -math.inf
        self._sandboxes: dict[int, int] = {}  # the worker's number by pidfd
        self._killed: set[int] = set()
        self.poll = select.epoll()

    def wait(self) -> list[int]:
        """Return the ready descriptors; sandboxes that have ended are forgotten."""
        ready = [descriptor for descriptor, _ in self.poll.poll(CHECK_INTERVAL_SECONDS if self._sandboxes else None)]
        for descriptor in self._sandboxes.keys() & ready:
            del self._sandboxes[descriptor]
            # Closing is not enough: epoll reports the open file until the worker closes it too, even under the
            # descriptor number of another sandbox.
            self.poll.unregister(descriptor)
            os.close(descriptor)
        return ready

    def lease_renewed(self, sent_at: float) -> bool:
        self._renewed_at = max(self._renewed_at, sent_at)
        return True

    def guard(self, number: int, descriptors: Sequence[int]) -> bool:
        """Guard a sandbox; return False if that is not possible, so that its program must not start."""
        for descriptor in descriptors:
            try:
                signal.pidfd_send_signal(descriptor, 0)
                self.poll.register(descriptor, select.EPOLLIN)
            except ProcessLookupError:
                os.close(descriptor)
            except OSError:
                os.close(descriptor)
                return False
            else:
                self._sandboxes[descriptor] = number
        return bool(descriptors)

    def was_killed(self, number: int) -> bool:
        """Return whether the guardian killed this sandbox, and forget it."""
        with contextlib.suppress(KeyError):
            self._killed.remove(number)
            return True
        return False

    def kill_expired(self) -> None:
        if boottime() - self._renewed_at > self._limit_seconds:
            self.kill_all()

    def kill_all(self) -> None:
        for descriptor, number in self._sandboxes.items():
            if not _has_exited(descriptor):
                self._killed.add(number)
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def _has_exited(descriptor: int) -> bool:  # as workers.sandbox.pidfd, which this script cannot import
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def serve(channel: socket.socket, worker: int, guarded: GuardedSandboxes) -> None:
    """Serve requests until the worker exits."""
    guarded.poll.register(channel, select.EPOLLIN)
    guarded.poll.register(worker, select.EPOLLIN)
    while True:
        ready = guarded.wait()
        if worker in ready:
            return
        response = b""
        if channel.fileno() in ready:
            data, descriptors, _, _ = socket.recv_fds(channel, REQUEST.size, 1)
            if not data:
                return
            request, number, sent_at = REQUEST.unpack(data)
            if request == LEASE_RENEWED:
                done = guarded.lease_renewed(sent_at)
            elif request == GUARD:
                done = guarded.guard(number, descriptors)
            else:
                done = guarded.was_killed(number)
            response = YES if done else NO
        # After the request, which may be a renewal; before the response, as the sandbox starts with it.
        guarded.kill_expired()
        if response:
            channel.send(response)


def main(arguments: Sequence[str]) -> int:
    channel = socket.socket(fileno=int(arguments[0]))
    guarded = GuardedSandboxes(float(arguments[2]))
    # A service manager often signals all processes of a service; this one is needed until the worker has drained.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        worker = os.pidfd_open(int(arguments[1]))
    except ProcessLookupError:
        return 0
    os.chdir("/")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with contextlib.suppress(ConnectionError):
            serve(channel, worker, guarded)
    finally:
        guarded.kill_all()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
