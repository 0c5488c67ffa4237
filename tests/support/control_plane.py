"""In-memory control plane with configurable responses that records all calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO
from uuid import UUID, uuid4

from jobs.domain.errors import WorkerNameTaken
from jobs.domain.worker_protocol import (
    AttemptFence,
    Chunk,
    ClaimedRun,
    MovedExecution,
    Progress,
    Registration,
    RunReport,
    StopOrder,
    StoredOutput,
    WorkerOffer,
    WorkerUsage,
)

OFFER = WorkerOffer("w", UUID(int=0), "default", "h", 1, 1.0, 1, 1, [], {})


class MemoryControlPlane:
    def __init__(self) -> None:
        self.worker_id = uuid4()
        self.calls: list[str] = []
        self.renewals: list[list[tuple[UUID, int]]] = []
        self.reports: list[RunReport] = []
        self.renewed = threading.Event()
        self.evicted = threading.Event()
        self.name_is_taken = False
        self.on_renew: Callable[[], list[StopOrder]] = list
        self.on_register: Callable[[], None] = lambda: None
        self.on_leave: Callable[[], None] = lambda: None
        self.on_read: Callable[[str], Iterator[bytes]] = lambda _sha256: iter(())
        self.claimed: ClaimedRun | None = None
        self.usage: WorkerUsage | None = None
        self.lease_seconds: float | None = None
        self._incarnation = 0

    def register(self, offer: WorkerOffer) -> Registration:
        self.calls.append("register")
        self.on_register()
        if self.name_is_taken:
            raise WorkerNameTaken
        self._incarnation += 1
        return Registration(self.worker_id, self._incarnation)

    def renew(
        self, registration: Registration, held: Iterable[tuple[UUID, int]], usage: WorkerUsage | None = None
    ) -> list[StopOrder]:
        self.renewals.append(list(held))
        self.usage = usage
        self.renewed.set()
        return self.on_renew()

    def drain(self, registration: Registration) -> None:
        self.calls.append(f"drain {registration.incarnation}")

    def leave(self, registration: Registration) -> None:
        self.calls.append(f"leave {registration.incarnation}")
        self.on_leave()

    def claim(self, fence: AttemptFence) -> ClaimedRun:
        self.calls.append("claim")
        assert self.claimed is not None
        return self.claimed

    def start(self, fence: AttemptFence, receipt: Mapping[str, object]) -> None:
        self.calls.append("start")

    def log(self, fence: AttemptFence, chunks: Sequence[Chunk], progress: Progress | None = None) -> None:
        self.calls.append("log")

    def finish(self, fence: AttemptFence, report: RunReport) -> MovedExecution | None:
        self.reports.append(report)
        return MovedExecution(fence.execution_id, uuid4(), uuid4(), "failed")

    def read_artifact(self, sha256: str) -> Iterator[bytes]:
        return self.on_read(sha256)

    def store_output(self, fence: AttemptFence, output: StoredOutput, body: IO[bytes]) -> None:
        self.calls.append("store")
