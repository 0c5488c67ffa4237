"""A worker on a machine that has nothing but the control plane's address and a token: joins, runs what it gets, leaves.

It leaves when it is told to, when its token is refused, or when another worker has taken its name; each time it first
finishes or releases what it holds.
"""

from __future__ import annotations

import logging
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from jobs.errors import PunctualError
from jobs.protocol import PROTOCOL_VERSION, Hold
from jobs.states import Reason
from workers.agent import Agent
from workers.claimer import Claimer
from workers.configuration import WorkerSettings
from workers.equipping import make_guardian, open_workshop
from workers.errors import WorkerCannotStart
from workers.log_stream import LogFlusher
from workers.rest_control_plane import CLAIM_MARGIN_SECONDS, RestControlPlane
from workers.rest_transport import RestTransport
from workers.run import run_attempt

logger = logging.getLogger(__name__)


class RemoteWorker:
    def __init__(self, settings: WorkerSettings, *, url: str, token: str, ca_file: str | None = None) -> None:
        self._settings = settings
        self._ending = threading.Event()
        self._problem = ""
        self._transport = RestTransport(url, token, ca_file=ca_file, on_refused=self._give_up)
        self._control_plane = RestControlPlane(self._transport)
        # Asked first: an address or a token that is wrong is told before anything is made here.
        self._terms = terms = self._control_plane.read_terms()
        if terms.protocol != PROTOCOL_VERSION:
            raise WorkerCannotStart(
                f"The server speaks version {terms.protocol} of the workers' protocol and this checkout version"
                f" {PROTOCOL_VERSION}; bring both to the same release."
            )
        workshop = open_workshop(settings)
        guardian = make_guardian(terms.lease_seconds)
        self._agent = Agent(
            self._control_plane,
            workshop.offer,
            lease_seconds=terms.lease_seconds,
            renew_seconds=terms.renew_seconds,
            guardian=guardian,
            on_evicted=lambda: self._give_up("Another worker has its name, or there is no guardian for what it runs."),
        )
        self._flusher = LogFlusher()
        self._equipment = workshop.equip(self._control_plane, self._agent.held, self._flusher, guardian)
        self._slots = ThreadPoolExecutor(max_workers=workshop.offer.slots, thread_name_prefix="slot")
        self._claimer = Claimer(
            self._control_plane,
            self._agent.held,
            self._start_run,
            wait_seconds=terms.claim_wait_seconds,
            may_run=lambda: not guardian.expired(),
        )
        offer = workshop.offer
        logger.info(
            "%s has joined %s: pool %s, %d slots, %g cpus, %d MB, runs %s",
            *(offer.name, url, offer.pool, offer.slots, offer.cpu, offer.memory_mb, ", ".join(offer.capabilities)),
        )

    def run(self) -> str:
        """Until it ends; returns why, if nobody asked for it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._flusher.start()
        self._agent.start()
        self._claimer.start()
        self._ending.wait()
        self._leave()
        return self._problem

    def _leave(self) -> None:
        # It drains for the server first, which then answers the question that waits: what that brings still runs.
        try:
            self._control_plane.drain(self._agent.held.registration)
        except PunctualError as error:
            logger.warning("The control plane does not hear that this worker drains: %s", error)
        self._claimer.stop(CLAIM_MARGIN_SECONDS)
        self._agent.drain(0 if self._problem else self._settings.drain_seconds)
        self._flusher.stop()
        self._slots.shutdown(wait=False, cancel_futures=True)
        self._transport.close()
        logger.info("This worker has left")

    def _start_run(self, hold: Hold) -> None:
        self._slots.submit(self._run, hold)

    def _run(self, hold: Hold) -> None:
        try:
            moved = run_attempt(self._equipment, hold)
        except PunctualError as error:
            logger.warning("How attempt %s of %s ended cannot be told: %s", hold.attempt, hold.execution_id, error)
        except Exception:
            logger.exception("Attempt %s of %s could not be carried through", hold.attempt, hold.execution_id)
        else:
            if moved is not None:
                logger.info("Attempt %s of %s ended; now %s", hold.attempt, hold.execution_id, moved.state)

    def _give_up(self, why: str) -> None:
        self._problem = self._problem or why
        self._ending.set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._ending.is_set():
            logger.info(
                "Draining for at most %g s; a second signal releases the runs at once", self._settings.drain_seconds
            )
            self._ending.set()
            return
        # Not here: the signal may have interrupted whoever holds the locks that this needs.
        threading.Thread(target=self._agent.held.stop_all, args=(Reason.RELEASED,), daemon=True).start()
