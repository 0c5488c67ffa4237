"""Asks the control plane for work, again and again, and hands what comes to the pool of slots.

Invariant: whatever was claimed for this worker is run, or given back; nothing waits in between until a lease ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from jobs.errors import WorkerLeaseLost
from jobs.protocol import Hold
from workers.errors import ControlPlaneRefused, ControlPlaneUnavailable
from workers.held_runs import HeldRuns
from workers.rest_control_plane import RestControlPlane, Work

logger = logging.getLogger(__name__)

# An answer that brings nothing new comes early when too many workers wait, or while a run is being stopped.
PAUSE_SECONDS = 0.5
PAUSE_AFTER_ERROR_SECONDS = 1.0
TAKE_SECONDS = 5.0


class Claimer:
    def __init__(
        self,
        control_plane: RestControlPlane,
        held: HeldRuns,
        run: Callable[[Hold], None],
        *,
        wait_seconds: float,
        may_run: Callable[[], bool] = lambda: True,
    ) -> None:
        """`run` is to return at once: it has a slot free, as the control plane places no more than there are.

        While it may not run, because its lease is not renewed, it asks for nothing.
        """
        self._control_plane = control_plane
        self._held = held
        self._run = run
        self._wait_seconds = wait_seconds
        self._may_run = may_run
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="claimer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Lets the question that is under way be answered: what it brings is run like all the rest."""
        self._stopping.set()
        self._thread.join(timeout=seconds)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            if not self._may_run():
                self._stopping.wait(PAUSE_SECONDS)
                continue
            try:
                work = self.ask()
            except ControlPlaneRefused:
                return
            except (ControlPlaneUnavailable, WorkerLeaseLost) as error:
                # A lost lease is the agent's to mend: it registers anew.
                logger.warning("No work can be asked for, trying again: %s", error)
                self._stopping.wait(PAUSE_AFTER_ERROR_SECONDS)
            except Exception:
                logger.exception("Asking for work failed; trying again")
                self._stopping.wait(PAUSE_AFTER_ERROR_SECONDS)
            else:
                if not work.holds:
                    self._stopping.wait(max(0.0, began + PAUSE_SECONDS - time.monotonic()))

    def ask(self) -> Work:
        """One question and all that follows from its answer."""
        work = self._control_plane.ask_for_work(
            self._held.registration, self._held.pairs(), wait_seconds=self._wait_seconds
        )
        self._held.count_answer()
        self._held.obey(work.orders)
        for hold in work.holds:
            self._run(hold)
        # Once all are taken the next question lists them, and a drain waits for them.
        self._control_plane.give_back_untaken(TAKE_SECONDS)
        return work
