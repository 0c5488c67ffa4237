"""Makes a Celery worker a Punctual worker: registers it, gives it its queue, keeps its lease, drains it.

It is a step of the worker, not of the consumer: a lost Redis restarts the consumer's steps, and must not touch a lease.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from celery import bootsteps
from django.conf import settings
from kombu import Exchange, Queue

from jobs.errors import WorkerNameTaken
from jobs.messages import worker_queue
from jobs.protocol import Offer
from workers import runtime
from workers.agent import SAFETY_SHARE, Agent
from workers.artifact_cache import ArtifactCache
from workers.capacity import MEGABYTE, describe_host, measure_capacity
from workers.configuration import WorkerSettings
from workers.consuming import Consuming
from workers.direct_control_plane import DirectControlPlane
from workers.errors import GuardianUnavailable, WorkerCannotStart
from workers.guardian import Guardian
from workers.log_stream import LogFlusher
from workers.run import Equipment
from workers.sandbox import Sandbox, SandboxUnavailable, clean_leftovers, detect_host, find_runtimes
from workers.wake_ear import WakeEar
from workers.watchdog import Watchdog

logger = logging.getLogger(__name__)

# Housekeeping must not wait behind long runs.
SYSTEM_THREADS = 2


class AgentStep(bootsteps.StartStopStep):
    # Stopped before the pool: it drains while pool threads still work.
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        self._settings: WorkerSettings = settings.PUNCTUAL_WORKER
        try:
            self._equip(worker)
        except (GuardianUnavailable, WorkerCannotStart, WorkerNameTaken, SandboxUnavailable) as error:
            # Celery would show where it came from; what the operator needs is the sentence.
            raise SystemExit(f"punctual worker: {error}") from error

    def _equip(self, worker: Any) -> None:
        state = Path(self._settings.state_dir).resolve()
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock_directory(state)
        control_plane = DirectControlPlane()
        host = detect_host()
        clean_leftovers()
        interpreters = find_runtimes(host)
        capacity = measure_capacity(self._settings)
        guardian = Guardian(settings.PUNCTUAL_LEASE_SECONDS * SAFETY_SHARE)
        self._agent = Agent(
            control_plane,
            Offer(
                name=capacity.name,
                instance=_instance(state),
                pool=self._settings.pool,
                host=capacity.host,
                slots=capacity.slots,
                cpu=capacity.cpu,
                memory_mb=capacity.memory_mb,
                disk_mb=capacity.disk_mb,
                capabilities=sorted(interpreters),
                details=describe_host(host, interpreters),
                resources=capacity.resources,
            ),
            lease_seconds=settings.PUNCTUAL_LEASE_SECONDS,
            renew_seconds=settings.PUNCTUAL_RENEW_SECONDS,
            guardian=guardian,
            on_evicted=lambda: os.kill(os.getpid(), signal.SIGTERM),
        )
        worker_id = self._agent.held.registration.worker_id
        self._ear = WakeEar(settings.PUNCTUAL_REDIS_URL, worker_id, self._agent.renew_soon)
        self._flusher = LogFlusher()
        runtime.equip(
            Equipment(
                control_plane=control_plane,
                sandbox=Sandbox(host),
                guardian=guardian,
                interpreters=interpreters,
                cache=ArtifactCache(state / "artifacts", self._settings.cache_mb * MEGABYTE),
                flusher=self._flusher,
                held=self._agent.held,
            )
        )
        worker.concurrency = worker.min_concurrency = capacity.slots + SYSTEM_THREADS
        name = worker_queue(worker_id)
        queue = Queue(name, Exchange(name), routing_key=name)
        worker.app.amqp.queues.select_add(queue)
        consuming = Consuming(worker, queue, self._agent.held, capacity.slots, settings.PUNCTUAL_REDIS_URL)
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


def _lock_directory(state: Path) -> int:
    """Two workers with one state would take each other's work for their own."""
    descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise WorkerCannotStart(
            f"Another worker uses {state}; give this one a directory of its own (PUNCTUAL_WORKER_STATE_DIR)"
            " and a name of its own (PUNCTUAL_WORKER_NAME)."
        ) from error
    return descriptor


def _instance(state: Path) -> UUID:
    """Made once and kept beside the lock: it tells this worker's restart from another worker of its name."""
    path = state / "instance"
    try:
        return UUID(path.read_text())
    except (FileNotFoundError, ValueError):
        instance = uuid4()
        fresh = path.with_suffix(".new")
        fresh.write_text(str(instance))
        fresh.replace(path)
        return instance
