"""Polls the control plane for work and hands it to the pool of slots.

Invariant: every attempt claimed for this worker is run or released at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from jobs.domain.errors import WorkerLeaseLost
from jobs.domain.worker_protocol import AttemptFence
from workers.control_plane.rest import ClaimResponse, RestControlPlane
from workers.errors import ControlPlaneUnavailable, WorkerTokenRejected
from workers.lease.held_runs import HeldRuns

logger = logging.getLogger(__name__)

# An empty response comes early when too many workers wait, or while a run is being stopped.
EMPTY_POLL_PAUSE_SECONDS = 0.5
ERROR_PAUSE_SECONDS = 1.0
CLAIM_TIMEOUT_SECONDS = 5.0


class Claimer:
    def __init__(
        self,
        control_plane: RestControlPlane,
        held: HeldRuns,
        run: Callable[[AttemptFence], None],
        *,
        wait_seconds: float,
        may_run: Callable[[], bool] = lambda: True,
    ) -> None:
        """`run` must return at once; a slot is free, as the control plane places no more than there are.

        While `may_run` returns False, because the lease is not renewed, the claimer does not poll.
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
        """Stop after the current poll; its attempts still run."""
        self._stopping.set()
        self._thread.join(timeout=seconds)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            started = time.monotonic()
            if not self._may_run():
                self._stopping.wait(EMPTY_POLL_PAUSE_SECONDS)
                continue
            try:
                work = self.poll()
            except WorkerTokenRejected:
                return
            except (ControlPlaneUnavailable, WorkerLeaseLost) as error:
                # After a lost lease the agent registers again.
                logger.warning("Polling for work failed, retrying: %s", error)
                self._stopping.wait(ERROR_PAUSE_SECONDS)
            except Exception:
                logger.exception("Polling for work failed, retrying")
                self._stopping.wait(ERROR_PAUSE_SECONDS)
            else:
                if not work.fences:
                    self._stopping.wait(max(0.0, started + EMPTY_POLL_PAUSE_SECONDS - time.monotonic()))

    def poll(self) -> ClaimResponse:
        """Poll once, apply the stop orders and start the runs."""
        work = self._control_plane.poll_for_work(
            self._held.registration, self._held.attempts(), wait_seconds=self._wait_seconds
        )
        self._held.count_poll()
        self._held.apply_orders(work.orders)
        for fence in work.fences:
            self._run(fence)
        # Afterwards every attempt is held: the next poll lists it and a drain waits for it.
        self._control_plane.release_unclaimed(CLAIM_TIMEOUT_SECONDS)
        return work
