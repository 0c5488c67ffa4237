"""Makes a Celery worker a Punctual worker: registers it, gives it its queue, keeps its lease, drains it.

It is a step of the worker, not of the consumer: a lost Redis restarts the consumer's steps, and must not touch a lease.
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

from jobs.errors import WorkerNameTaken
from jobs.messages import worker_queue
from workers import runtime
from workers.agent import Agent
from workers.configuration import WorkerSettings
from workers.consuming import Consuming
from workers.direct_control_plane import DirectControlPlane
from workers.equipping import make_guardian, open_workshop
from workers.errors import GuardianUnavailable, WorkerCannotStart
from workers.log_stream import LogFlusher
from workers.sandbox import SandboxUnavailable
from workers.wake_ear import WakeEar
from workers.watchdog import Watchdog

logger = logging.getLogger(__name__)

# Housekeeping must not wait behind long runs.
SYSTEM_THREADS = 2
# A run comes back from Postgres, its guardian and its slot a dozen times, and each time waits so long for a busy one.
SWITCH_SECONDS = 0.0005


class AgentStep(bootsteps.StartStopStep):
    # Stopped before the pool: it drains while pool threads still work.
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        sys.setswitchinterval(SWITCH_SECONDS)
        self._settings: WorkerSettings = settings.PUNCTUAL_WORKER
        try:
            self._equip(worker)
        except (GuardianUnavailable, WorkerCannotStart, WorkerNameTaken, SandboxUnavailable) as error:
            # Celery would show where it came from; what the operator needs is the sentence.
            raise SystemExit(f"punctual worker: {error}") from error

    def _equip(self, worker: Any) -> None:
        # It opens them itself, so that without keys a run with secrets would fail here and may do well elsewhere.
        has_keys = bool(settings.PUNCTUAL_SECRETS_KEYS)
        if not has_keys:
            logger.warning("This worker takes no jobs that are given secrets: PUNCTUAL_SECRETS_KEYS is not set.")
        workshop = open_workshop(self._settings, secrets=has_keys)
        control_plane = DirectControlPlane()
        guardian = make_guardian(settings.PUNCTUAL_LEASE_SECONDS)
        self._agent = Agent(
            control_plane,
            workshop.offer,
            lease_seconds=settings.PUNCTUAL_LEASE_SECONDS,
            renew_seconds=settings.PUNCTUAL_RENEW_SECONDS,
            guardian=guardian,
            on_evicted=lambda: os.kill(os.getpid(), signal.SIGTERM),
        )
        worker_id = self._agent.held.registration.worker_id
        self._ear = WakeEar(settings.PUNCTUAL_REDIS_URL, worker_id, self._agent.renew_soon)
        self._flusher = LogFlusher()
        runtime.equip(workshop.equip(control_plane, self._agent.held, self._flusher, guardian))
        slots = workshop.offer.slots
        worker.concurrency = worker.min_concurrency = slots + SYSTEM_THREADS
        name = worker_queue(worker_id)
        queue = Queue(name, Exchange(name), routing_key=name)
        worker.app.amqp.queues.select_add(queue)
        consuming = Consuming(worker, queue, self._agent.held, slots, settings.PUNCTUAL_REDIS_URL)
        self._watchdog = Watchdog(consuming.look, consuming.remedies(self._abandon))

    def start(self, worker: Any) -> None:
        self._flusher.start()
        self._agent.start()
        self._ear.start()
        self._watchdog.start()

    def stop(self, worker: Any) -> None:
        # From here on it is meant to take nothing.
        self._watchdog.stop()
        # Heard until the end: what is cancelled while it drains is stopped at once, too.
        self._agent.drain(self._settings.drain_seconds)
        self._ear.stop()
        self._flusher.stop()
        if hanging := self._agent.held.pairs():
            # They were released with the goodbye. Celery would wait for their threads, for minutes perhaps.
            logger.warning("Leaving %d threads behind that wait for something that does not answer", len(hanging))
            logging.shutdown()
            os._exit(os.EX_OK)

    def terminate(self, parent: Any) -> None:
        self.stop(parent)

    def _abandon(self) -> None:
        """Celery's main thread does not even leave when it is told to; its supervisor makes a new one."""
        self._agent.drain(self._settings.drain_seconds)
        os._exit(1)
