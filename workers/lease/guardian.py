"""Client of the guardian process: reports renewals, hands over sandboxes, replaces a dead guardian.

Invariant: no program executes an instruction before a living guardian has accepted its sandbox.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from workers.errors import GuardianUnavailable
from workers.lease import guardian_process
from workers.lease.guardian_process import GUARD, LEASE_RENEWED, REQUEST, WAS_KILLED, YES, boottime
from workers.sandbox.sidecar import Sidecar

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT_SECONDS = 5.0


class Guardian:
    """Handle of the guardian process, shared by the agent and all run threads."""

    def __init__(self, limit_seconds: float, set_deadline: Callable[[float], None] = lambda _: None) -> None:
        """`set_deadline` gets the new deadline of all runs after every renewal."""
        self._limit_seconds = limit_seconds
        self._set_deadline = set_deadline
        self._renewed_at = -math.inf
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._guarded: dict[int, int] = {}  # pidfds of guarded sandboxes by number, for a replacement guardian
        self._killed: set[int] = set()
        self._closed = False
        self._sidecar = self._start()
        self._finalizer = weakref.finalize(self, self._sidecar.stop)

    @property
    def pid(self) -> int:
        return self._sidecar.pid

    def expired(self) -> bool:
        """Return whether the last acknowledged renewal is so old that nothing may run."""
        return boottime() - self._renewed_at > self._limit_seconds

    def lease_renewed(self, sent_at: float) -> None:
        """Record an acknowledged renewal that was sent at this `boottime()`."""
        with self._lock:
            self._renewed_at = max(self._renewed_at, sent_at)
            self._set_deadline(self._renewed_at + self._limit_seconds)
            self._ask(LEASE_RENEWED, sent_at=sent_at)

    def replace_if_dead(self) -> None:
        """Replace a dead guardian; skip if another thread is using it, as that thread replaces it."""
        if self._lock.acquire(blocking=False):
            try:
                if not (self._closed or self._sidecar.alive):
                    self._replace("it has exited")
            finally:
                self._lock.release()

    @contextmanager
    def guard_run(self) -> Iterator[GuardedRun]:
        """Reserve a number for one sandbox until the context exits."""
        number = next(self._numbers)
        try:
            yield GuardedRun(self, number)
        finally:
            with self._lock:
                self._killed.discard(number)
                descriptor = self._guarded.pop(number, None)
                if descriptor is not None:
                    os.close(descriptor)

    def admit(self, number: int, pidfd: int) -> None:
        with self._lock:
            descriptor = os.dup(pidfd)
            try:
                if not self._ask(GUARD, number, descriptor):
                    raise GuardianUnavailable("The guardian cannot signal the sandbox, or cannot accept one more.")
            except BaseException:
                os.close(descriptor)
                raise
            self._guarded[number] = descriptor

    def killed(self, number: int) -> bool:
        with self._lock:
            return self._ask(WAS_KILLED, number) or number in self._killed

    def close(self) -> None:
        """Stop the guardian, which kills every sandbox it guards; further calls raise GuardianUnavailable."""
        with self._lock:
            self._closed = True
            self._finalizer()

    def _ask(self, request: bytes, number: int = 0, descriptor: int | None = None, *, sent_at: float = 0.0) -> bool:
        if self._closed:
            raise GuardianUnavailable("The guardian was stopped: this worker runs nothing more.")
        packet = REQUEST.pack(request, number, sent_at)
        try:
            return _send_request(self._sidecar, packet, descriptor)
        except OSError as error:
            self._replace(str(error))
        try:
            return _send_request(self._sidecar, packet, descriptor)
        except OSError as error:
            # Kill it: a late response would be read as the response to the next request.
            self._sidecar.kill()
            raise GuardianUnavailable(f"A new guardian does not respond either ({error}).") from error

    def _replace(self, why: str) -> None:
        """Start a new guardian with the same state; sandboxes that the old one may have killed count as killed."""
        logger.error("The guardian of the sandboxes is gone (%s); starting a new one", why)
        if self.expired():
            self._killed |= self._guarded.keys()
        # Not by closing its channel: a slow guardian would take that for the worker's exit and kill all sandboxes.
        self._sidecar.kill()
        self._finalizer.detach()
        try:
            self._sidecar = self._start()
            self._finalizer = weakref.finalize(self, self._sidecar.stop)
            _send_request(self._sidecar, REQUEST.pack(LEASE_RENEWED, 0, self._renewed_at))
            for number, descriptor in self._guarded.items():
                if not _send_request(self._sidecar, REQUEST.pack(GUARD, number, 0.0), descriptor):
                    raise OSError("it cannot guard a running sandbox")
        except OSError as error:
            # Kill it, so that the next caller replaces it again or stops the worker.
            self._sidecar.kill()
            raise GuardianUnavailable(f"A new guardian could not be started ({error}).") from error

    def _start(self) -> Sidecar:
        try:
            return Sidecar(
                guardian_process.__file__, arguments=[self._limit_seconds], answer_seconds=ANSWER_TIMEOUT_SECONDS
            )
        except OSError as error:
            raise GuardianUnavailable(f"The guardian of the sandboxes could not be started ({error}).") from error


class GuardedRun:
    def __init__(self, guardian: Guardian, number: int) -> None:
        self._guardian = guardian
        self._number = number

    def admit(self, pidfd: int) -> None:
        """Hand over the sandbox's pid 1; if this raises GuardianUnavailable, the program must not start."""
        self._guardian.admit(self._number, pidfd)

    def was_killed(self) -> bool:
        """Return whether the guardian killed it."""
        return self._guardian.killed(self._number)


def _send_request(sidecar: Sidecar, packet: bytes, descriptor: int | None = None) -> bool:
    socket.send_fds(sidecar.channel, [packet], [] if descriptor is None else [descriptor])
    response = sidecar.channel.recv(1)
    if not response:
        raise OSError("it has exited")
    return response == YES
