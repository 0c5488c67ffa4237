"""Resolves host names with a timeout, which the system's resolver, getaddrinfo, does not have.

Invariant: a caller waits no longer than the timeout, and a bounded number of threads waits for the system. Callers
share a lookup in progress, so a name that hangs costs one thread.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

LOOKUP_TIMEOUT_SECONDS = 3.0
# Twice as many as deliveries can be in flight: half of them may hang.
MAX_LOOKUPS = 64

Resolve = Callable[[str, int], Sequence[str]]


class LookupTimedOut(TimeoutError):
    """The host's name could not be looked up in time."""


def resolve_host(host: str, port: int) -> list[str]:
    """Resolve a name, which may take as long as the system's resolver likes."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Resolver:
    """Resolves names in threads, so that callers can give up."""

    def __init__(
        self, resolve: Resolve = resolve_host, *, seconds: float = LOOKUP_TIMEOUT_SECONDS, lookups: int = MAX_LOOKUPS
    ) -> None:
        self._resolve = resolve
        self._timeout = seconds
        self._max_lookups = lookups
        self._in_progress: dict[tuple[str, int], Future[Sequence[str]]] = {}
        self._capacity = threading.Condition()

    def __call__(self, host: str, port: int) -> Sequence[str]:
        deadline = time.monotonic() + self._timeout
        lookup = self._begin((host, port))
        try:
            return lookup.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            raise LookupTimedOut(LookupTimedOut.__doc__) from None

    def _begin(self, name: tuple[str, int]) -> Future[Sequence[str]]:
        with self._capacity:
            self._capacity.wait_for(
                lambda: name in self._in_progress or len(self._in_progress) < self._max_lookups, self._timeout
            )
            if (lookup := self._in_progress.get(name)) is not None:
                return lookup
            if len(self._in_progress) >= self._max_lookups:
                raise LookupTimedOut(LookupTimedOut.__doc__)
            lookup = Future()
            # A daemon thread, not a pool: the process exits without waiting for the system.
            threading.Thread(target=self._look_up, args=(name, lookup), name="lookup", daemon=True).start()
            self._in_progress[name] = lookup
            return lookup

    def _look_up(self, name: tuple[str, int], lookup: Future[Sequence[str]]) -> None:
        try:
            lookup.set_result(self._resolve(*name))
        except BaseException as error:  # noqa: BLE001 - every waiting caller gets it
            lookup.set_exception(error)
        with self._capacity:
            del self._in_progress[name]
            self._capacity.notify_all()
