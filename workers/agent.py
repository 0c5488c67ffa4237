"""The worker's standing with the control plane: registers, renews the lease, obeys orders, drains.

A worker that cannot renew in time stops its runs before the lease ends: nobody else may start them while they live. The
guardian makes sure of it; what is done here is what only the worker can do, to know why its runs ended and say so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from jobs.errors import WorkerLeaseLost, WorkerNameTaken
from jobs.protocol import Offer
from jobs.states import Reason
from workers.control_plane import ControlPlane
from workers.errors import ControlPlaneUnavailable, GuardianUnavailable
from workers.guardian import Guardian
from workers.guardian_process import now
from workers.held_runs import HeldRuns
from workers.usage import measure_usage

logger = logging.getLogger(__name__)

# Runs are stopped this much before the lease ends, so that they are gone when it does.
SAFETY_SHARE = 5 / 6
LOOKS_A_LEASE = 60
# Whoever asks for a renewal out of turn waits this long, so that many who ask at once are one renewal.
GATHER_SECONDS = 0.05
# A run that was stopped is reported in less; one that hangs on the object store is released by the goodbye.
RELEASE_SECONDS = 5.0
# A renewal that failed is repeated sooner than the next is due: the control plane may be back any moment.
RENEW_AGAIN_SECONDS = 1.0
# How long runs that were stopped because the lease had ended get to say so, before a new life loses them.
REPORT_SECONDS = 3.0


class Agent:
    def __init__(
        self,
        control_plane: ControlPlane,
        offer: Offer,
        *,
        lease_seconds: float,
        renew_seconds: float,
        guardian: Guardian,
        on_evicted: Callable[[], None],
    ) -> None:
        self._control_plane = control_plane
        self._offer = offer
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._guardian = guardian
        self._on_evicted = on_evicted
        self._leaving = False
        sent_at = now()
        self.held = HeldRuns(control_plane.register(offer))
        guardian.trust(sent_at)
        self._stopping = threading.Event()
        self._asked = threading.Event()
        self._draining = False
        self._thread = threading.Thread(target=self._loop, name="agent", daemon=True)
        # A thread of its own: a renewal that hangs in a dead connection must not keep runs alive.
        self._watch = threading.Thread(target=self._watch_deadline, name="agent-deadline", daemon=True)
        logger.info(
            "Registered as worker %s, incarnation %s",
            self.held.registration.worker_id,
            self.held.registration.incarnation,
        )

    def start(self) -> None:
        self._thread.start()
        self._watch.start()

    def renew_soon(self) -> None:
        """There may be something to stop. Does not wait for it; the next renewal in turn would learn it as well."""
        self._asked.set()

    def drain(self, seconds: float) -> None:
        """Takes nothing new, lets runs finish for a while, releases the rest, says goodbye."""
        self._draining = True
        self.held.close()
        self._quietly("say that it drains", lambda: self._control_plane.drain(self.held.registration))
        if not self.held.wait_until_empty(seconds):
            logger.warning("Releasing %d runs that did not finish within %g s", len(self.held.pairs()), seconds)
            self.held.stop_all(Reason.RELEASED)
            self.held.wait_until_empty(RELEASE_SECONDS)
        self._stopping.set()
        self._asked.set()
        for thread in (self._thread, self._watch):
            if thread.is_alive():
                thread.join(timeout=self._renew_seconds + 1)
        # Whatever lives on against all odds: what it holds is given away next.
        self._guardian.close()
        self._quietly("say goodbye", lambda: self._control_plane.leave(self.held.registration))

    def _loop(self) -> None:
        pause = self._renew_seconds
        while not self._stopping.is_set():
            if self._asked.wait(pause) and self._stopping.wait(GATHER_SECONDS):
                return
            self._asked.clear()
            pause = self._renew_seconds
            try:
                self.renew()
            except ControlPlaneUnavailable as error:
                logger.warning("The lease was not renewed; trying again: %s", error)
                pause = min(pause, RENEW_AGAIN_SECONDS)
            except Exception:
                logger.exception("The lease was not renewed; trying again")
                pause = min(pause, RENEW_AGAIN_SECONDS)

    def _watch_deadline(self) -> None:
        while not self._stopping.wait(self._lease_seconds / LOOKS_A_LEASE):
            if self._guardian.expired():
                self.held.stop_all(Reason.RELEASED)
            try:
                self._guardian.look_after()
            except GuardianUnavailable as error:
                self._go_unguarded(error)

    def renew(self) -> None:
        sent_at = now()
        try:
            orders = self._control_plane.renew(self.held.registration, self.held.pairs(), measure_usage(self.held))
        except WorkerLeaseLost:
            logger.warning("The lease was lost: stopping every run and registering anew")
            self.held.stop_all(Reason.RELEASED)
            self.held.wait_until_empty(REPORT_SECONDS)
            self._register_anew()
            return
        self._trust(sent_at)
        self.held.obey(orders)

    def _register_anew(self) -> None:
        if self._stopping.is_set():
            # It has said goodbye meanwhile; registering would bring back a worker that is not there.
            return
        sent_at = now()
        try:
            self.held.registration = self._control_plane.register(self._offer)
        except WorkerNameTaken as error:
            # Taking the name back would only begin a quarrel that costs both their work.
            logger.warning("%s This one ends.", error)
            self._on_evicted()
            return
        self._trust(sent_at)
        if self._draining:
            # Registering makes it online: it would be given work that it does not take.
            self._quietly("say that it drains", lambda: self._control_plane.drain(self.held.registration))

    def _trust(self, sent_at: float) -> None:
        try:
            self._guardian.trust(sent_at)
        except GuardianUnavailable as error:
            self._go_unguarded(error)

    def _go_unguarded(self, error: GuardianUnavailable) -> None:
        """Nothing may run unguarded: this worker ends, and its supervisor starts one that has a guardian."""
        self.held.close()
        self.held.stop_all(Reason.RELEASED)
        if not (self._leaving or self._draining):
            self._leaving = True
            logger.error("%s Stopping every run; this worker ends.", error)
            self._on_evicted()

    def _quietly(self, what: str, call: Callable[[], None]) -> None:
        try:
            call()
        except (ControlPlaneUnavailable, WorkerLeaseLost) as error:
            logger.warning("The worker could not %s; its lease will end by itself: %s", what, error)
