"""The watchdog's view of this Celery worker, and its means to recover it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kombu import Queue

from jobs.db.wakeups import BestEffortRedis
from workers.celery.watchdog import QueueSnapshot, RecoveryAction
from workers.lease.held_runs import HeldRuns

REDIS_TIMEOUT_SECONDS = 0.5


class ConsumerProbe:
    def __init__(self, worker: Any, queue: Queue, held: HeldRuns, slots: int, redis_url: str) -> None:
        self._worker = worker
        self._queue = queue
        self._held = held
        self._slots = slots
        self._redis = BestEffortRedis(redis_url, timeout_seconds=REDIS_TIMEOUT_SECONDS)
        self._pool_probe: Future[None] | None = None

    def take_snapshot(self) -> QueueSnapshot | None:
        consumer = self._worker.consumer
        if consumer is None or consumer.task_consumer is None:
            return None
        found = self._redis.try_call(lambda client: (client.lindex(self._queue.name, -1),))
        return None if found is None else QueueSnapshot(oldest=found[0], has_free_slot=self._has_free_slot())

    def recovery_actions(self, force_exit: Callable[[], None]) -> dict[RecoveryAction, Callable[[], None]]:
        return {
            RecoveryAction.RESTART_CONSUMER: self._reconnect,
            RecoveryAction.SHUT_DOWN: lambda: os.kill(os.getpid(), signal.SIGTERM),
            RecoveryAction.FORCE_EXIT: force_exit,
        }

    def _reconnect(self) -> None:
        self._worker.consumer.reconnect_to_broker()

    def _has_free_slot(self) -> bool:
        """Return whether a slot and a pool thread are both free: system tasks may occupy every thread."""
        has_free_thread = self._pool_probe is None or self._pool_probe.done()
        if has_free_thread:
            self._pool_probe = self._worker.pool.executor.submit(lambda: None)
        return has_free_thread and len(self._held.attempts()) < self._slots
