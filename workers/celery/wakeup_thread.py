"""Thread that listens on Redis and renews the lease at once when there are runs to stop.

A missed wake-up delays a cancel until the next regular renewal; it never loses one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from uuid import UUID

from jobs.db.wakeups import WakeupListener, worker_channel

logger = logging.getLogger(__name__)

LISTEN_TIMEOUT_SECONDS = 1.0


class WakeupThread:
    def __init__(self, redis_url: str, worker_id: UUID, on_wakeup: Callable[[], None]) -> None:
        self._listener = WakeupListener(redis_url, channel=worker_channel(worker_id))
        self._on_wakeup = on_wakeup
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="wakeup", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * LISTEN_TIMEOUT_SECONDS)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._listener.wait(LISTEN_TIMEOUT_SECONDS):
                    self._on_wakeup()
            except Exception:
                logger.exception("Listening for wake-ups failed; retrying")
                self._stopping.wait(LISTEN_TIMEOUT_SECONDS)
        self._listener.close()
