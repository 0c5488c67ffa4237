"""The process that ends a worker's sandboxes once nobody can vouch for its lease, whatever became of the worker.

It exists because a worker that is frozen or starved cannot stop anything itself. Invariant: what it has taken is killed
`limit` seconds after the last renewal that it heard of was sent, and at once when the worker is gone.

Run as a script (`python -I -S`), hence the standard library only. Each request is one packet, with the pidfd of a
sandbox's pid 1 where one is handed over; each answer is one byte. It keeps the worker's uid: it may signal what the
worker may.
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

REQUEST = struct.Struct("=cqd")  # what, the number that the worker gave a sandbox, a moment
TRUST, GUARD, ASK = b"t", b"g", b"a"
YES, NO = b"y", b"n"
# A wait does not notice that the machine slept, the clock below does.
LOOK_SECONDS = 0.25


def now() -> float:
    """Goes on while the machine sleeps, as leases do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Watch:
    """What is guarded, and how long it may live."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self._trusted_at = -math.inf
        self._sandboxes: dict[int, int] = {}  # the worker's number of each, by descriptor
        self._killed: set[int] = set()
        self.poll = select.epoll()

    def wait(self) -> list[int]:
        """Descriptors with something to say, other than sandboxes, which are forgotten once they are over."""
        ready = [descriptor for descriptor, _ in self.poll.poll(LOOK_SECONDS if self._sandboxes else None)]
        for descriptor in self._sandboxes.keys() & ready:
            del self._sandboxes[descriptor]
            # Closing would not do: while the worker has the same descriptor open, it would go on being reported, also
            # in the name of another sandbox that is given its number.
            self.poll.unregister(descriptor)
            os.close(descriptor)
        return ready

    def trust(self, moment: float) -> bool:
        self._trusted_at = max(self._trusted_at, moment)
        return True

    def guard(self, number: int, descriptors: Sequence[int]) -> bool:
        """False: it cannot be guarded, and must not be let go."""
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
        """Whether it ended by our hand; told once."""
        with contextlib.suppress(KeyError):
            self._killed.remove(number)
            return True
        return False

    def kill_expired(self) -> None:
        if now() - self._trusted_at > self._limit_seconds:
            self.kill_all()

    def kill_all(self) -> None:
        for descriptor, number in self._sandboxes.items():
            if not _is_over(descriptor):
                self._killed.add(number)
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def _is_over(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def serve(channel: socket.socket, worker: int, watch: Watch) -> None:
    """Until the worker is gone."""
    watch.poll.register(channel, select.EPOLLIN)
    watch.poll.register(worker, select.EPOLLIN)
    while True:
        ready = watch.wait()
        if worker in ready:
            return
        answer = b""
        if channel.fileno() in ready:
            data, descriptors, _, _ = socket.recv_fds(channel, REQUEST.size, 1)
            if not data:
                return
            what, number, moment = REQUEST.unpack(data)
            if what == TRUST:
                done = watch.trust(moment)
            elif what == GUARD:
                done = watch.guard(number, descriptors)
            else:
                done = watch.was_killed(number)
            answer = YES if done else NO
        # Before the answer, for what was just handed over; after the request, which may have brought new trust.
        watch.kill_expired()
        if answer:
            channel.send(answer)


def main(arguments: Sequence[str]) -> int:
    channel = socket.socket(fileno=int(arguments[0]))
    watch = Watch(float(arguments[2]))
    # Whoever ends a service often signals all of its processes; this one is needed until the worker has drained.
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
            serve(channel, worker, watch)
    finally:
        watch.kill_all()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
