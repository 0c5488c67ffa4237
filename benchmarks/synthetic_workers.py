"""Workers of ample capacity that take every message and end its execution at once, running nothing.

They are registered, so placement is the real one. They end what they take, because executions that nobody claims are
published again and fill the tables in a way that no healthy fleet does. Of the system tasks that beat sends they do the
one that beat needs, the refill of its due window.
"""

from __future__ import annotations

import queue
import threading
import time
from datetime import UTC, datetime, timedelta
from types import TracebackType
from uuid import UUID, uuid4

import psycopg

from benchmarks.laboratory import Laboratory
from benchmarks.receiver import BLOCK_SECONDS, Arrival, Receiver
from jobs.db.transactions import releasing_connection
from jobs.domain.messages import RUN_TASK, worker_queue
from jobs.domain.worker_protocol import WorkerOffer
from jobs.fleet.leases import register_worker
from jobs.models import Worker
from jobs.tasks import refill_due_window

WORKERS = 10
LOOK_SECONDS = 0.05
SYSTEM_QUEUE = "system"
END = """
UPDATE jobs_execution
   SET state = 'succeeded', reason = 'exit', exit_code = 0,
       claimed_at = clock_timestamp(), started_at = clock_timestamp(), ended_at = clock_timestamp()
 WHERE id = ANY(%s) AND state = 'queued'
"""


class SyntheticWorkers:
    """`arrived` says of each execution when its first message came, `repeated` how many came again."""

    def __init__(self, laboratory: Laboratory) -> None:
        self.arrived: dict[UUID, float] = {}
        self.repeated = 0
        self._laboratory = laboratory
        self._left = threading.Event()
        self._refills: queue.SimpleQueue[float] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._end_executions, self._refill_window)
        ]
        self._errors: list[BaseException] = []

    def __enter__(self) -> SyntheticWorkers:
        queues = [worker_queue(worker_id) for worker_id in _register()]
        self._receiver = Receiver(self._laboratory.redis_url, [*queues, SYSTEM_QUEUE])
        self._receiver.__enter__()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        for thread in self._threads:
            thread.join()
        self._receiver.__exit__(kind, error, trace)

    def wait_for(self, count: int, *, seconds: float) -> bool:
        """Whether so many executions have arrived in time."""
        deadline = time.monotonic() + seconds
        while len(self.arrived) < count and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            if self._errors:
                raise self._errors[0]
        return len(self.arrived) >= count

    def _end_executions(self) -> None:
        try:
            with psycopg.connect(self._laboratory.database_url, autocommit=True) as connection:
                while not self._left.wait(LOOK_SECONDS):
                    taken = [self._take(arrival) for arrival in self._receiver.arrivals()]
                    if ids := [execution_id for execution_id in taken if execution_id is not None]:
                        connection.execute(END, [ids])
        except Exception as error:  # noqa: BLE001 - raised in `wait_for`
            self._errors.append(error)

    def _take(self, arrival: Arrival) -> UUID | None:
        if arrival.headers["task"] != RUN_TASK:
            if arrival.headers["task"] == refill_due_window.name:
                self._refills.put(arrival.at)
            return None
        execution_id = UUID(str(arrival.headers["id"])[:36])
        if execution_id in self.arrived:
            self.repeated += 1
        self.arrived.setdefault(execution_id, arrival.at)
        return execution_id

    def _refill_window(self) -> None:
        while not self._left.is_set():
            try:
                self._refills.get(timeout=BLOCK_SECONDS)
            except queue.Empty:
                continue
            try:
                with releasing_connection():
                    refill_due_window()
            except Exception as error:  # noqa: BLE001 - raised in `wait_for`
                self._errors.append(error)


def _register() -> list[UUID]:
    made = [
        register_worker(
            WorkerOffer(
                name=f"synthetic-{number}-{uuid4()}",
                instance=uuid4(),
                pool="default",
                host="benchmark",
                slots=1_000_000,
                cpu=1e6,
                memory_mb=10**9,
                disk_mb=10**9,
                capabilities=["bash"],
                details={},
            )
        ).worker_id
        for number in range(WORKERS)
    ]
    # Nobody renews for them.
    Worker.objects.filter(id__in=made).update(lease_until=datetime.now(UTC) + timedelta(days=1))
    return made
