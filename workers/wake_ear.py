"""Hears through Redis that the worker should ask at once what it has to stop.

What is not heard is learnt with the next renewal in turn: a Redis that is away makes a cancel late, never lost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from uuid import UUID

from jobs.wakeups import WakeListener, worker_channel

logger = logging.getLogger(__name__)

LISTEN_SECONDS = 1.0


class WakeEar:
    def __init__(self, redis_url: str, worker_id: UUID, on_woken: Callable[[], None]) -> None:
        self._listener = WakeListener(redis_url, channel=worker_channel(worker_id))
        self._on_woken = on_woken
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="wake-ear", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * LISTEN_SECONDS)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._listener.wait(LISTEN_SECONDS):
                    self._on_woken()
            except Exception:
                logger.exception("Listening for wake-ups failed; trying again")
                self._stopping.wait(LISTEN_SECONDS)
        self._listener.close()
