"""What the watchdog sees of this Celery worker, and what it can do to it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kombu import Queue

from jobs.wakeups import HurriedRedis
from workers.held_runs import HeldRuns
from workers.watchdog import Remedy, Sight

REDIS_SECONDS = 0.5


class Consuming:
    def __init__(self, worker: Any, queue: Queue, held: HeldRuns, slots: int, redis_url: str) -> None:
        self._worker = worker
        self._queue = queue
        self._held = held
        self._slots = slots
        self._redis = HurriedRedis(redis_url, timeout_seconds=REDIS_SECONDS)
        self._turn: Future[None] | None = None

    def look(self) -> Sight | None:
        consumer = self._worker.consumer
        if consumer is None or consumer.task_consumer is None:
            # Not up yet.
            return None
        seen = self._redis.attempt(lambda client: (client.lindex(self._queue.name, -1),))
        return None if seen is None else Sight(oldest=seen[0], free=self._is_free())

    def remedies(self, abandon: Callable[[], None]) -> dict[Remedy, Callable[[], None]]:
        return {
            Remedy.CONSUME_AGAIN: lambda: self._worker.consumer.consume_again(self._queue),
            Remedy.LEAVE: lambda: os.kill(os.getpid(), signal.SIGTERM),
            Remedy.ABANDON: abandon,
        }

    def _is_free(self) -> bool:
        """A free slot is not enough: system tasks may have every thread, and then it is right to take nothing."""
        got_its_turn = self._turn is None or self._turn.done()
        if got_its_turn:
            self._turn = self._worker.pool.executor.submit(lambda: None)
        return got_its_turn and len(self._held.pairs()) < self._slots
