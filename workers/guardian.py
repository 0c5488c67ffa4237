"""The worker's end of the guardian: tells it of every renewal, hands it every sandbox, replaces it when it dies.

Invariant: no program executes an instruction before a living guardian has taken its sandbox.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from workers import guardian_process
from workers.errors import GuardianUnavailable
from workers.guardian_process import ASK, GUARD, REQUEST, TRUST, YES, now
from workers.sandbox.companion import Companion

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0


class Guardian:
    """Shared by the agent and all threads that run something."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self._trusted_at = -math.inf
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._wards: dict[int, int] = {}  # our own descriptors of what it guards, to hand over to its successor
        self._killed: set[int] = set()
        self._closed = False
        self._companion = self._start()
        self._finalizer = weakref.finalize(self, self._companion.stop)

    @property
    def pid(self) -> int:
        return self._companion.pid

    def expired(self) -> bool:
        """No renewal was sent and acknowledged for so long that nothing may run any more."""
        return now() - self._trusted_at > self._limit_seconds

    def trust(self, sent_at: float) -> None:
        """A renewal that was sent then, by `now()`, was acknowledged."""
        with self._lock:
            self._trusted_at = max(self._trusted_at, sent_at)
            self._ask(TRUST, moment=sent_at)

    def look_after(self) -> None:
        """Replaces a guardian that has died; one that somebody is talking to is being looked after."""
        if self._lock.acquire(blocking=False):
            try:
                if not (self._closed or self._companion.alive):
                    self._replace("it has ended")
            finally:
                self._lock.release()

    @contextmanager
    def ward(self) -> Iterator[Ward]:
        """A place for one sandbox, which is over when the context is left."""
        number = next(self._numbers)
        try:
            yield Ward(self, number)
        finally:
            with self._lock:
                self._killed.discard(number)
                descriptor = self._wards.pop(number, None)
                if descriptor is not None:
                    os.close(descriptor)

    def admit(self, number: int, pidfd: int) -> None:
        with self._lock:
            descriptor = os.dup(pidfd)
            try:
                if not self._ask(GUARD, number, descriptor):
                    raise GuardianUnavailable("The guardian may not signal, or cannot hold, one more sandbox.")
            except BaseException:
                os.close(descriptor)
                raise
            self._wards[number] = descriptor

    def killed(self, number: int) -> bool:
        with self._lock:
            return self._ask(ASK, number) or number in self._killed

    def close(self) -> None:
        """Ends it, and with it whatever it still guards; nothing can be admitted any more."""
        with self._lock:
            self._closed = True
            self._finalizer()

    def _ask(self, what: bytes, number: int = 0, descriptor: int | None = None, *, moment: float = 0.0) -> bool:
        if self._closed:
            raise GuardianUnavailable("The guardian was ended: this worker runs nothing more.")
        packet = REQUEST.pack(what, number, moment)
        try:
            return _exchange(self._companion, packet, descriptor)
        except OSError as error:
            self._replace(str(error))
        try:
            return _exchange(self._companion, packet, descriptor)
        except OSError as error:
            # Dead for certain: one that answers later would answer the next question with it.
            self._companion.kill()
            raise GuardianUnavailable(f"A new guardian does not answer either ({error}).") from error

    def _replace(self, why: str) -> None:
        """Its successor learns what it knew; what it may have killed before it died counts as killed."""
        logger.error("The guardian of the sandboxes is gone (%s); starting a new one", why)
        if self.expired():
            self._killed |= self._wards.keys()
        # Not by closing its channel: one that is only slow would take that for our end, and kill what it guards.
        self._companion.kill()
        self._finalizer.detach()
        try:
            self._companion = self._start()
            self._finalizer = weakref.finalize(self, self._companion.stop)
            _exchange(self._companion, REQUEST.pack(TRUST, 0, self._trusted_at))
            for number, descriptor in self._wards.items():
                if not _exchange(self._companion, REQUEST.pack(GUARD, number, 0.0), descriptor):
                    raise OSError("it cannot hold what the last one held")
        except OSError as error:
            # Dead for certain, so that whoever looks next hands everything over again, or leaves.
            self._companion.kill()
            raise GuardianUnavailable(f"A new guardian could not be started ({error}).") from error

    def _start(self) -> Companion:
        try:
            return Companion(guardian_process.__file__, arguments=[self._limit_seconds], answer_seconds=ANSWER_SECONDS)
        except OSError as error:
            raise GuardianUnavailable(f"The guardian of the sandboxes could not be started ({error}).") from error


class Ward:
    def __init__(self, guardian: Guardian, number: int) -> None:
        self._guardian = guardian
        self._number = number

    def admit(self, pidfd: int) -> None:
        """Returns once the guardian has the sandbox's pid 1; raises GuardianUnavailable, and it must not be let go."""
        self._guardian.admit(self._number, pidfd)

    def was_killed(self) -> bool:
        """Whether the guardian ended it."""
        return self._guardian.killed(self._number)


def _exchange(companion: Companion, packet: bytes, descriptor: int | None = None) -> bool:
    socket.send_fds(companion.channel, [packet], [] if descriptor is None else [descriptor])
    answer = companion.channel.recv(1)
    if not answer:
        raise OSError("it has ended")
    return answer == YES
