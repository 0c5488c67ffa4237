"""Celery bootstep that registers the worker, adds its queue, renews its lease and drains it.

It is a step of the worker, not of the consumer: losing Redis restarts the consumer's steps but must not end the lease.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any

from celery import bootsteps
from django.conf import settings
from kombu import Exchange, Queue

from jobs.domain.errors import WorkerNameTaken
from jobs.domain.messages import worker_queue
from jobs.domain.states import Reason
from workers.celery.consumer_probe import ConsumerProbe
from workers.celery.tasks import set_run_context
from workers.celery.wakeup_thread import WakeupThread
from workers.celery.watchdog import Watchdog
from workers.configuration import WorkerSettings
from workers.control_plane.direct import DirectControlPlane
from workers.errors import GuardianUnavailable, WorkerCannotStart
from workers.lease.agent import Agent
from workers.run.log_stream import LogFlusher
from workers.sandbox.errors import SandboxUnavailable
from workers.setup import make_guardian, prepare_worker_host

logger = logging.getLogger(__name__)

# System tasks must not wait behind long runs.
SYSTEM_THREADS = 2
# A run waits for Postgres, the guardian and its slot a dozen times; after each wait it may have to wait this long for
# the GIL.
SWITCH_INTERVAL_SECONDS = 0.0005


class AgentStep(bootsteps.StartStopStep):
    # Stopped before the pool: it drains while pool threads still work.
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        self._settings: WorkerSettings = settings.PUNCTUAL_WORKER
        try:
            self._set_up_worker(worker)
        except (GuardianUnavailable, WorkerCannotStart, WorkerNameTaken, SandboxUnavailable) as error:
            # The operator needs the message, not a traceback.
            raise SystemExit(f"punctual worker: {error}") from error

    def _set_up_worker(self, worker: Any) -> None:
        # This worker decrypts secrets itself. Without keys, leave runs with secrets to other workers.
        has_keys = bool(settings.PUNCTUAL_SECRETS_KEYS)
        if not has_keys:
            logger.warning("This worker does not accept jobs with secrets: PUNCTUAL_SECRETS_KEYS is not set.")
        worker_host = prepare_worker_host(
            self._settings, lease_seconds=settings.PUNCTUAL_LEASE_SECONDS, secrets=has_keys
        )
        control_plane = DirectControlPlane()
        guardian = make_guardian(settings.PUNCTUAL_LEASE_SECONDS, worker_host.sandbox)
        self._agent = Agent(
            control_plane,
            worker_host.offer,
            lease_seconds=settings.PUNCTUAL_LEASE_SECONDS,
            renew_seconds=settings.PUNCTUAL_RENEW_SECONDS,
            guardian=guardian,
            on_evicted=lambda: os.kill(os.getpid(), signal.SIGTERM),
        )
        control_plane.on_stale = lambda fence: self._agent.held.stop(fence.execution_id, fence.attempt, Reason.RELEASED)
        worker_id = self._agent.held.registration.worker_id
        self._wakeup_thread = WakeupThread(settings.PUNCTUAL_REDIS_URL, worker_id, self._agent.request_renewal)
        self._flusher = LogFlusher()
        set_run_context(worker_host.make_run_context(control_plane, self._agent.held, self._flusher, guardian))
        slots = worker_host.offer.slots
        worker.concurrency = worker.min_concurrency = slots + SYSTEM_THREADS
        name = worker_queue(worker_id)
        queue = Queue(name, Exchange(name), routing_key=name)
        worker.app.amqp.queues.select_add(queue)
        probe = ConsumerProbe(worker, queue, self._agent.held, slots, settings.PUNCTUAL_REDIS_URL)
        self._watchdog = Watchdog(probe.take_snapshot, probe.recovery_actions(self._force_exit))

    def start(self, worker: Any) -> None:
        self._flusher.start()
        self._agent.start()
        self._wakeup_thread.start()
        self._watchdog.start()

    def stop(self, worker: Any) -> None:
        # A draining worker takes no messages, which the watchdog would report as a stall.
        self._watchdog.stop()
        # Wake-ups still arrive during the drain, so that a cancel takes effect at once.
        self._agent.drain(self._settings.drain_seconds)
        self._wakeup_thread.stop()
        self._flusher.stop()
        if hanging := self._agent.held.attempts():
            # The drain released these runs. Celery would wait for their threads, possibly for minutes.
            logger.warning("Exiting with %d threads still blocked in calls that do not return", len(hanging))
            logging.shutdown()
            os._exit(os.EX_OK)

    def terminate(self, parent: Any) -> None:
        self.stop(parent)

    def _force_exit(self) -> None:
        """Drain and exit without Celery, whose main thread ignores signals; the supervisor restarts the worker."""
        self._agent.drain(self._settings.drain_seconds)
        os._exit(1)
