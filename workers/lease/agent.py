"""Agent of the worker: registers, renews the lease, applies stop orders, drains.

If the lease cannot be renewed, runs must be dead before it ends, as other workers may then start them. The guardian
guarantees that; the agent stops the runs as well, so that their reports give the right reason.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from jobs.domain.errors import WorkerLeaseLost, WorkerNameTaken
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import WorkerOffer
from workers.control_plane.base import ControlPlane
from workers.errors import ControlPlaneUnavailable, GuardianUnavailable
from workers.lease.guardian import Guardian
from workers.lease.guardian_process import boottime
from workers.lease.held_runs import HeldRuns
from workers.lease.usage import measure_usage

logger = logging.getLogger(__name__)

# Runs are stopped when this fraction of the lease has passed, so that they are gone when it ends.
LEASE_SAFETY_FRACTION = 5 / 6
CHECKS_PER_LEASE = 60
# A lost renewal must be harmless, even if the lease has become shorter since this worker started.
RENEWALS_PER_LEASE = 3
# Requests for an early renewal within this time are served by one renewal.
RENEW_DEBOUNCE_SECONDS = 0.05
# A stopped run is reported in less time; one that hangs on the object store is released when the worker leaves.
RELEASE_TIMEOUT_SECONDS = 5.0
# A failed renewal is retried sooner than the next regular one.
RENEW_RETRY_SECONDS = 1.0
# Time for stopped runs to report after a lost lease, before the worker registers again and loses their attempts.
REPORT_TIMEOUT_SECONDS = 3.0


class Agent:
    def __init__(
        self,
        control_plane: ControlPlane,
        offer: WorkerOffer,
        *,
        lease_seconds: float,
        renew_seconds: float,
        guardian: Guardian,
        on_evicted: Callable[[], None],
    ) -> None:
        self._control_plane = control_plane
        self._offer = offer
        self._lease_seconds = lease_seconds
        self._guardian_lease_seconds = lease_seconds
        self._max_renew_seconds = renew_seconds
        self._guardian = guardian
        self._on_evicted = on_evicted
        self._leaving = False
        sent_at = boottime()
        self.held = HeldRuns(control_plane.register(offer))
        guardian.lease_renewed(self._adjust_for_guardian(sent_at))
        self._stopping = threading.Event()
        self._renewal_requested = threading.Event()
        self._draining = False
        self._thread = threading.Thread(target=self._loop, name="agent", daemon=True)
        # A separate thread: a renewal that hangs in a dead connection must not keep runs alive.
        self._deadline_thread = threading.Thread(target=self._watch_deadline, name="agent-deadline", daemon=True)
        logger.info(
            "Registered as worker %s, incarnation %s",
            self.held.registration.worker_id,
            self.held.registration.incarnation,
        )

    def start(self) -> None:
        self._thread.start()
        self._deadline_thread.start()

    def request_renewal(self) -> None:
        """Renew soon, as there may be runs to stop; does not wait for the renewal."""
        self._renewal_requested.set()

    def drain(self, seconds: float) -> None:
        """Accept no new runs, wait this long for the others, release the rest, deregister."""
        self._draining = True
        self.held.close()
        self._try_call("announce its drain", lambda: self._control_plane.drain(self.held.registration))
        if not self.held.wait_until_empty(seconds):
            logger.warning("Releasing %d runs that did not finish within %g s", len(self.held.attempts()), seconds)
            self.held.stop_all(Reason.RELEASED)
            self.held.wait_until_empty(RELEASE_TIMEOUT_SECONDS)
        self._stopping.set()
        self._renewal_requested.set()
        for thread in (self._thread, self._deadline_thread):
            if thread.is_alive():
                thread.join(timeout=self.renew_seconds + 1)
        # Kill every remaining sandbox before its attempt is released.
        self._guardian.close()
        self._try_call("deregister", lambda: self._control_plane.leave(self.held.registration))

    def _loop(self) -> None:
        pause = self.renew_seconds
        while not self._stopping.is_set():
            if self._renewal_requested.wait(pause) and self._stopping.wait(RENEW_DEBOUNCE_SECONDS):
                return
            self._renewal_requested.clear()
            pause = self.renew_seconds
            try:
                self.renew()
            except ControlPlaneUnavailable as error:
                logger.warning("The lease was not renewed; retrying: %s", error)
                pause = min(pause, RENEW_RETRY_SECONDS)
            except Exception:
                logger.exception("The lease was not renewed; retrying")
                pause = min(pause, RENEW_RETRY_SECONDS)

    def _watch_deadline(self) -> None:
        while not self._stopping.wait(self._lease_seconds / CHECKS_PER_LEASE):
            if self._guardian.expired():
                self.held.stop_all(Reason.RELEASED)
            try:
                self._guardian.replace_if_dead()
            except GuardianUnavailable as error:
                self._stop_unguarded(error)

    @property
    def renew_seconds(self) -> float:
        return min(self._max_renew_seconds, self._lease_seconds / RENEWALS_PER_LEASE)

    def _adjust_for_guardian(self, sent_at: float) -> float:
        """Shift the renewal time: the guardian computes its deadline from the lease it was started with."""
        self._lease_seconds = self._control_plane.lease_seconds or self._lease_seconds
        return sent_at + (self._lease_seconds - self._guardian_lease_seconds) * LEASE_SAFETY_FRACTION

    def renew(self) -> None:
        sent_at = boottime()
        try:
            orders = self._control_plane.renew(self.held.registration, self.held.attempts(), measure_usage(self.held))
        except WorkerLeaseLost:
            logger.warning("The lease was lost: stopping every run and registering again")
            self.held.stop_all(Reason.RELEASED)
            self.held.wait_until_empty(REPORT_TIMEOUT_SECONDS)
            self._reregister()
            return
        self._confirm_renewal(sent_at)
        self.held.apply_orders(orders)

    def _reregister(self) -> None:
        if self._stopping.is_set():
            return  # already deregistered by a drain
        sent_at = boottime()
        try:
            self.held.registration = self._control_plane.register(self._offer)
        except WorkerNameTaken as error:
            # Taking the name back would make the two workers evict each other in turns.
            logger.warning("%s This worker exits.", error)
            self._on_evicted()
            return
        self._confirm_renewal(sent_at)
        if self._draining:
            # Registration sets the worker online; it would be given work that it does not accept.
            self._try_call("announce its drain", lambda: self._control_plane.drain(self.held.registration))

    def _confirm_renewal(self, sent_at: float) -> None:
        try:
            self._guardian.lease_renewed(self._adjust_for_guardian(sent_at))
        except GuardianUnavailable as error:
            self._stop_unguarded(error)

    def _stop_unguarded(self, error: GuardianUnavailable) -> None:
        """Stop every run and exit, as nothing may run unguarded; the supervisor restarts the worker."""
        self.held.close()
        self.held.stop_all(Reason.RELEASED)
        if not (self._leaving or self._draining):
            self._leaving = True
            logger.error("%s Stopping every run; this worker exits.", error)
            self._on_evicted()

    def _try_call(self, action: str, call: Callable[[], None]) -> None:
        try:
            call()
        except (ControlPlaneUnavailable, WorkerLeaseLost) as error:
            logger.warning("The worker could not %s; its lease will expire: %s", action, error)
