"""Looks up what names stand for, by the system's means, which nothing can interrupt.

Invariant: whoever asks is answered in time, and however long the system takes, only so many threads wait for it. A name
that is being looked up already is waited for, not looked up once more: one that hangs costs one thread.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

LOOKUP_SECONDS = 3.0
# Twice as many as can be on their way: half of them may hang.
LOOKUPS = 64

Resolve = Callable[[str, int], Sequence[str]]


class NotLookedUp(TimeoutError):
    """The host's name could not be looked up in time."""


def resolve_host(host: str, port: int) -> list[str]:
    """The system decides how long that takes."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Resolver:
    def __init__(
        self, resolve: Resolve = resolve_host, *, seconds: float = LOOKUP_SECONDS, lookups: int = LOOKUPS
    ) -> None:
        self._resolve = resolve
        self._seconds = seconds
        self._lookups = lookups
        self._going_on: dict[tuple[str, int], Future[Sequence[str]]] = {}
        self._room = threading.Condition()

    def __call__(self, host: str, port: int) -> Sequence[str]:
        deadline = time.monotonic() + self._seconds
        lookup = self._begin((host, port))
        try:
            return lookup.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            raise NotLookedUp(NotLookedUp.__doc__) from None

    def _begin(self, name: tuple[str, int]) -> Future[Sequence[str]]:
        with self._room:
            self._room.wait_for(lambda: name in self._going_on or len(self._going_on) < self._lookups, self._seconds)
            if (lookup := self._going_on.get(name)) is not None:
                return lookup
            if len(self._going_on) >= self._lookups:
                raise NotLookedUp(NotLookedUp.__doc__)
            lookup = Future()
            # Not a pool's: whoever ends does not wait for the system.
            threading.Thread(target=self._look_up, args=(name, lookup), name="lookup", daemon=True).start()
            self._going_on[name] = lookup
            return lookup

    def _look_up(self, name: tuple[str, int], lookup: Future[Sequence[str]]) -> None:
        try:
            lookup.set_result(self._resolve(*name))
        except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
            lookup.set_exception(error)
        with self._room:
            del self._going_on[name]
            self._room.notify_all()
