"""The attempts that this worker holds, each with a way to stop it; shared by pool threads and the agent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID

from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, Registration, StopOrder


class HeldRun:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kill: Callable[[], None] | None = None
        self.stop_reason: Reason | None = None

    def attach(self, kill: Callable[[], None]) -> None:
        """Set how to kill the run; call it at once if a stop was requested before."""
        with self._lock:
            self._kill = kill
            stop_requested = self.stop_reason is not None
        if stop_requested:
            kill()

    def stop(self, reason: Reason) -> None:
        with self._lock:
            if self.stop_reason is None:
                self.stop_reason = reason
            kill = self._kill
        if kill is not None:
            kill()


class HeldRuns:
    def __init__(self, registration: Registration) -> None:
        self.registration = registration
        self.taken = 0  # messages or polls processed, with or without a run
        self._changed = threading.Condition()
        self._runs: dict[tuple[UUID, int], HeldRun] = {}
        self._closed = False

    @contextmanager
    def holding(self, fence: AttemptFence) -> Iterator[HeldRun]:
        """Hold an attempt during the context; a duplicate, or one after `close`, gets an already stopped run."""
        key, run = (fence.execution_id, fence.attempt), HeldRun()
        with self._changed:
            self.taken += 1
            refused = self._closed or key in self._runs
            if not refused:
                self._runs[key] = run
        if refused:
            run.stop(Reason.RELEASED)
            yield run
            return
        try:
            yield run
        finally:
            with self._changed:
                del self._runs[key]
                self._changed.notify_all()

    def count_poll(self) -> None:
        """Count a completed poll: a polling worker is responsive even without work."""
        with self._changed:
            self.taken += 1

    def attempts(self) -> list[tuple[UUID, int]]:
        with self._changed:
            return list(self._runs)

    def stop(self, execution_id: UUID, attempt: int, reason: Reason) -> None:
        with self._changed:
            run = self._runs.get((execution_id, attempt))
        if run is not None:
            run.stop(reason)

    def apply_orders(self, orders: Iterable[StopOrder]) -> None:
        for order in orders:
            self.stop(order.execution_id, order.attempt, Reason.CANCELLED if order.cancelled else Reason.RELEASED)

    def stop_all(self, reason: Reason) -> None:
        with self._changed:
            runs = list(self._runs.values())
        for run in runs:
            run.stop(reason)

    def close(self) -> None:
        """Hold no new attempts from now on."""
        with self._changed:
            self._closed = True

    def wait_until_empty(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._runs, timeout=seconds)
