"""A stage of beat's work on its own thread, so that a slow or stuck stage delays no other.

Invariant: a stage survives every error of its step, and runs its step from time to time even if nothing notifies it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from jobs.db.transactions import releasing_connection

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

ERROR_BACKOFF_SECONDS = 0.5
STOP_TIMEOUT_SECONDS = 3.0


class Stage:
    def __init__(self, name: str, step: Callable[[], float]) -> None:
        """`step` does a bounded piece of work and returns the seconds until the next one, unless `notify` is called."""
        self._name = name
        self._step = step
        self._not_before = 0.0
        self._notified = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def notify(self) -> None:
        self._notified.set()

    def delay_next(self, seconds: float) -> None:
        """Called by the step: start the next one no earlier, whatever notifies it, so that it finds more work."""
        self._not_before = time.monotonic() + seconds

    def stop(self) -> None:
        """Ask the thread to stop; `join` waits for it."""
        self._stopping.set()
        self._notified.set()

    def join(self) -> None:
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=STOP_TIMEOUT_SECONDS)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            # Before the step: a notification that comes while it runs may be about something it did not see.
            self._notified.clear()
            try:
                with releasing_connection():
                    pause = self._step()
                    while pause <= 0 and not self._stopping.is_set():
                        pause = self._step()
            except Exception:
                logger.exception("Beat's stage '%s' failed; retrying", self._name)
                self._stopping.wait(ERROR_BACKOFF_SECONDS)
            else:
                self._stopping.wait(max(0.0, self._not_before - time.monotonic()))
                self._notified.wait(None if math.isinf(pause) else pause)


def run_safely(name: str, call: Callable[[], Result]) -> Result | None:
    """Return the result of a part of a step, or None if it failed: its error is logged and stops no other part."""
    try:
        return call()
    except Exception:
        logger.exception("Beat's stage '%s' failed; retrying", name)
        return None
