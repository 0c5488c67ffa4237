"""Watchdog that detects a stalled queue and recovers its consumer.

A worker can be connected, answer pings and consume nothing, so the watchdog watches the queue itself. It acts only if
the same message stays oldest while a slot is free and Redis answers.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 1.0
# A healthy worker takes a message within milliseconds.
STALLED_AFTER_SECONDS = 4.0
RECONNECT_TIMEOUT_SECONDS = 15.0
# Celery's main thread may be stuck, and then ignores signals.
SHUTDOWN_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    oldest: bytes | str | None  # the next message to consume
    has_free_slot: bool  # and a pool thread for it


class RecoveryAction(enum.Enum):
    RESTART_CONSUMER = enum.auto()
    SHUT_DOWN = enum.auto()
    FORCE_EXIT = enum.auto()


RECOVERY_STEPS = (
    (STALLED_AFTER_SECONDS, RecoveryAction.RESTART_CONSUMER),
    (RECONNECT_TIMEOUT_SECONDS, RecoveryAction.SHUT_DOWN),
    (SHUTDOWN_TIMEOUT_SECONDS, RecoveryAction.FORCE_EXIT),
)


class StallDetector:
    """Tracks how long the same message has been oldest, and which recovery steps were tried."""

    def __init__(self) -> None:
        self._oldest: bytes | str | None = None
        self._since = 0.0
        self._tried = 0

    def next_action(self, snapshot: QueueSnapshot | None, now: float) -> RecoveryAction | None:
        """Return the recovery step to take now; a `snapshot` of None means that Redis did not answer."""
        if snapshot is None:
            self._since = now
            return None
        oldest = snapshot.oldest if snapshot.has_free_slot else None
        if oldest is None or oldest != self._oldest:
            self._oldest, self._since, self._tried = oldest, now, 0
            return None
        if self._tried == len(RECOVERY_STEPS) or now - self._since < RECOVERY_STEPS[self._tried][0]:
            return None
        action = RECOVERY_STEPS[self._tried][1]
        self._since, self._tried = now, self._tried + 1
        return action


class Watchdog:
    def __init__(
        self,
        take_snapshot: Callable[[], QueueSnapshot | None],
        recovery_actions: dict[RecoveryAction, Callable[[], None]],
    ) -> None:
        self._take_snapshot = take_snapshot
        self._recovery_actions = recovery_actions
        self._detector = StallDetector()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=2 * CHECK_INTERVAL_SECONDS)

    def _loop(self) -> None:
        while not self._stopping.wait(CHECK_INTERVAL_SECONDS):
            try:
                action = self._detector.next_action(self._take_snapshot(), time.monotonic())
                if action is not None:
                    logger.warning("This worker's queue is stalled; recovery step: %s", action.name)
                    self._recovery_actions[action]()
            except Exception:
                logger.exception("The watchdog check failed; retrying")
