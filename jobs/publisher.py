"""Publishes placed executions on a thread of its own, so that a slow or frozen Redis never delays firing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from jobs import conf
from jobs.services.database import pooled
from jobs.services.publishing import Publication, publish_queued

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
PAUSE_AFTER_ERROR_SECONDS = 0.5


class Publisher:
    def __init__(self, send: Callable[[Sequence[Publication]], None]) -> None:
        self._send = send
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def notify(self) -> None:
        self._wanted.set()

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            # Even without a notification: what another beat placed and never published is found here.
            self._wanted.wait(LOOK_SECONDS)
            self._wanted.clear()
            try:
                with pooled():
                    while publish_queued(self._send) == conf.PUBLISH_BATCH_MESSAGES and not self._stopping.is_set():
                        pass
            except Exception:
                logger.exception("Publishing failed; what was not sent is sent again")
                self._stopping.wait(PAUSE_AFTER_ERROR_SECONDS)
