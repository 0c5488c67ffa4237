"""A part of beat's work on a thread of its own, so that none of them, slow or stuck, delays another.

Invariant: a stage outlives every error of its work, and looks for work by itself also when nobody tells it of any.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from jobs.services.database import pooled

logger = logging.getLogger(__name__)

PAUSE_AFTER_ERROR_SECONDS = 0.5
STOP_SECONDS = 3.0


class Stage:
    def __init__(self, name: str, work: Callable[[], float]) -> None:
        """`work` does a bounded piece and returns how long to wait before the next unless somebody notifies."""
        self._rest_until = 0.0
        self._name = name
        self._work = work
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def notify(self) -> None:
        self._wanted.set()

    def rest(self, seconds: float) -> None:
        """For its own work: whatever it is told, the next piece begins no earlier, and so finds more to do at once."""
        self._rest_until = time.monotonic() + seconds

    def stop(self) -> None:
        """Asks it to; `join` waits until it has."""
        self._stopping.set()
        self._wanted.set()

    def join(self) -> None:
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=STOP_SECONDS)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            # Before the work: a notification that comes during it is for what it may have missed.
            self._wanted.clear()
            try:
                with pooled():
                    pause = self._work()
                    while pause <= 0 and not self._stopping.is_set():
                        pause = self._work()
            except Exception:
                logger.exception("Beat's stage '%s' failed and is tried again", self._name)
                self._stopping.wait(PAUSE_AFTER_ERROR_SECONDS)
            else:
                self._stopping.wait(max(0.0, self._rest_until - time.monotonic()))
                self._wanted.wait(None if math.isinf(pause) else pause)
