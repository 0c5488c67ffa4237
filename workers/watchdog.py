"""Notices that work lies in the worker's own queue and nobody takes it, and sees to it that it is taken.

A worker can be connected, answer pings and consume nothing, so it is the queue that is looked at. Only what lies still
counts: while the oldest message changes, no slot is free, or Redis does not answer, nothing is done.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
# A healthy worker takes a message within milliseconds.
SILENT_SECONDS = 4.0
# Connecting anew takes a moment.
MENDED_SECONDS = 15.0
# Celery's main thread may be what is stuck, and then hears no signal either.
LEFT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Sight:
    oldest: bytes | str | None  # the message that is to be taken next
    free: bool  # there is a slot and a thread for it


class Remedy(enum.Enum):
    CONSUME_AGAIN = enum.auto()
    LEAVE = enum.auto()
    ABANDON = enum.auto()


STEPS = (
    (SILENT_SECONDS, Remedy.CONSUME_AGAIN),
    (MENDED_SECONDS, Remedy.LEAVE),
    (LEFT_SECONDS, Remedy.ABANDON),
)


class Patience:
    """How long the same message lies there, and what has been done about it."""

    def __init__(self) -> None:
        self._oldest: bytes | str | None = None
        self._since = 0.0
        self._tried = 0

    def judge(self, sight: Sight | None, now: float) -> Remedy | None:
        """None of `sight`: Redis did not answer, so nobody can take anything."""
        if sight is None:
            self._since = now
            return None
        oldest = sight.oldest if sight.free else None
        if oldest is None or oldest != self._oldest:
            self._oldest, self._since, self._tried = oldest, now, 0
            return None
        if self._tried == len(STEPS) or now - self._since < STEPS[self._tried][0]:
            return None
        remedy = STEPS[self._tried][1]
        self._since, self._tried = now, self._tried + 1
        return remedy


class Watchdog:
    def __init__(self, look: Callable[[], Sight | None], remedies: dict[Remedy, Callable[[], None]]) -> None:
        self._look = look
        self._remedies = remedies
        self._patience = Patience()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=2 * LOOK_SECONDS)

    def _loop(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                remedy = self._patience.judge(self._look(), time.monotonic())
                if remedy is not None:
                    logger.warning("Work waits in this worker's queue and it takes none: %s", remedy.name)
                    self._remedies[remedy]()
            except Exception:
                logger.exception("The watchdog could not look; looking again")
