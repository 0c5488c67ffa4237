"""A worker that connects over HTTP, with only the control plane's URL and a token.

It exits on a signal, when its token is rejected, or when another worker has taken its name; before that it finishes or
releases its runs.
"""

from __future__ import annotations

import logging
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import FrameType

from jobs.domain import limits
from jobs.domain.errors import PunctualError
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import PROTOCOL_VERSION, AttemptFence
from workers.configuration import WorkerSettings
from workers.control_plane.http import RestTransport
from workers.control_plane.rest import CLAIM_MARGIN_SECONDS, RestControlPlane
from workers.errors import WorkerCannotStart
from workers.lease.agent import Agent
from workers.remote.claimer import Claimer
from workers.run.log_stream import LogFlusher
from workers.run.run import run_attempt
from workers.setup import make_guardian, prepare_worker_host

logger = logging.getLogger(__name__)


class RemoteWorker:
    def __init__(self, settings: WorkerSettings, *, url: str, token: str, ca_file: str | None = None) -> None:
        self._settings = settings
        self._stop_requested = threading.Event()
        self._exit_reason = ""
        self._transport = RestTransport(url, token, ca_file=ca_file, on_refused=self._request_stop)
        self._control_plane = RestControlPlane(self._transport)
        # First, so that a wrong URL or token is reported before anything is created on this machine.
        self._terms = terms = self._control_plane.read_terms()
        if terms.protocol != PROTOCOL_VERSION:
            raise WorkerCannotStart(
                f"The server uses version {terms.protocol} of the worker protocol and this checkout version"
                f" {PROTOCOL_VERSION}; bring both to the same release."
            )
        _warn_of_token_expiry(terms.token_expires_at)
        worker_host = prepare_worker_host(settings, lease_seconds=terms.lease_seconds)
        guardian = make_guardian(terms.lease_seconds, worker_host.sandbox)
        self._agent = Agent(
            self._control_plane,
            worker_host.offer,
            lease_seconds=terms.lease_seconds,
            renew_seconds=terms.renew_seconds,
            guardian=guardian,
            on_evicted=lambda: self._request_stop("Another worker has its name, or its runs have no guardian."),
        )
        self._flusher = LogFlusher()
        self._context = worker_host.make_run_context(self._control_plane, self._agent.held, self._flusher, guardian)
        self._slots = ThreadPoolExecutor(max_workers=worker_host.offer.slots, thread_name_prefix="slot")
        self._claimer = Claimer(
            self._control_plane,
            self._agent.held,
            self._start_run,
            wait_seconds=terms.claim_wait_seconds,
            may_run=lambda: not guardian.expired(),
        )
        offer = worker_host.offer
        logger.info(
            "%s has joined %s: pool %s, %d slots, %g cpus, %d MB, capabilities %s",
            *(offer.name, url, offer.pool, offer.slots, offer.cpu, offer.memory_mb, ", ".join(offer.capabilities)),
        )

    def run(self) -> str:
        """Run until the worker exits; return the reason, or "" after a signal."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._flusher.start()
        self._agent.start()
        self._claimer.start()
        self._stop_requested.wait()
        self._leave()
        return self._exit_reason

    def _leave(self) -> None:
        # Draining on the server first makes it answer the pending poll, whose attempts still run.
        try:
            self._control_plane.drain(self._agent.held.registration)
        except PunctualError as error:
            logger.warning("The worker could not announce its drain: %s", error)
        self._claimer.stop(CLAIM_MARGIN_SECONDS)
        self._agent.drain(0 if self._exit_reason else self._settings.drain_seconds)
        self._flusher.stop()
        self._slots.shutdown(wait=False, cancel_futures=True)
        self._transport.close()
        logger.info("Deregistered")

    def _start_run(self, fence: AttemptFence) -> None:
        self._slots.submit(self._run, fence)

    def _run(self, fence: AttemptFence) -> None:
        try:
            moved = run_attempt(self._context, fence)
        except PunctualError as error:
            # As text: OutageHandler logs an outage once, but this line appears for every run.
            logger.warning("Attempt %s of %s could not be reported: %s", fence.attempt, fence.execution_id, str(error))
        except Exception:
            logger.exception("Attempt %s of %s failed unexpectedly", fence.attempt, fence.execution_id)
        else:
            if moved is not None:
                logger.info("Attempt %s of %s ended; now %s", fence.attempt, fence.execution_id, moved.state)

    def _request_stop(self, why: str) -> None:
        self._exit_reason = self._exit_reason or why
        self._stop_requested.set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._stop_requested.is_set():
            logger.info(
                "Draining for at most %g s; a second signal releases the runs at once", self._settings.drain_seconds
            )
            self._stop_requested.set()
            return
        # In a thread: the signal may have interrupted code that holds the locks needed here.
        threading.Thread(target=self._agent.held.stop_all, args=(Reason.RELEASED,), daemon=True).start()


def _warn_of_token_expiry(expires_at: datetime | None) -> None:
    """Warn before the token expires: the server then rejects the worker, which releases its runs and exits."""
    if expires_at is not None and (expires_at - datetime.now(UTC)).days < limits.TOKEN_EXPIRY_WARNING_DAYS:
        logger.warning("The token of this worker expires on %s: create a new one before then", f"{expires_at:%Y-%m-%d}")
