"""Starts of runs that are not stored yet: the end of a short run stores its start as well, in the same statement.

A thread stores the starts of runs that go on, many in one statement.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from jobs.domain.worker_protocol import AttemptFence, RunStart
from workers.control_plane.retry import RETRY_INTERVAL_SECONDS
from workers.errors import ControlPlaneUnavailable

logger = logging.getLogger(__name__)

# A run that takes longer is stored as running before it ends.
DELAY_SECONDS = 0.05


class DeferredStarts:
    def __init__(self, store: Callable[[Mapping[AttemptFence, RunStart]], None]) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._unstored: dict[AttemptFence, tuple[float, Mapping[str, object]]] = {}
        self._thread: threading.Thread | None = None

    def add(self, fence: AttemptFence, receipt: Mapping[str, object]) -> None:
        with self._changed:
            self._unstored[fence] = (time.monotonic(), receipt)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="deferred-starts", daemon=True)
                self._thread.start()

    def find(self, fence: AttemptFence) -> RunStart | None:
        """Return the start of a run, unless it is stored."""
        with self._changed:
            found = self._unstored.get(fence)
        return None if found is None else RunStart(found[1], time.monotonic() - found[0])

    def forget(self, fence: AttemptFence) -> None:
        with self._changed:
            self._unstored.pop(fence, None)

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unstored)
            time.sleep(DELAY_SECONDS)
            try:
                self._store_due()
            except ControlPlaneUnavailable as error:
                logger.warning("Starts of runs were not stored; retrying: %s", error)
                time.sleep(RETRY_INTERVAL_SECONDS)
            except Exception:
                logger.exception("Starts of runs were not stored; retrying")
                time.sleep(RETRY_INTERVAL_SECONDS)

    def _store_due(self) -> None:
        now = time.monotonic()
        with self._changed:
            due = {
                fence: RunStart(receipt, now - at)
                for fence, (at, receipt) in self._unstored.items()
                if now - at >= DELAY_SECONDS
            }
        if due:
            # Until it is stored, an end that comes meanwhile stores it too.
            self._store(due)
        for fence in due:
            self.forget(fence)
