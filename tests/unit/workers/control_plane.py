"""A control plane in memory: it answers a worker as it is told to, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO
from uuid import UUID, uuid4

from jobs.errors import WorkerNameTaken
from jobs.protocol import Chunk, Claimed, Hold, Moved, Offer, Order, Progress, Registration, Report, StoredOutput, Usage

OFFER = Offer("w", UUID(int=0), "default", "h", 1, 1.0, 1, 1, [], {})


class MemoryControlPlane:
    def __init__(self) -> None:
        self.worker_id = uuid4()
        self.asked: list[str] = []
        self.renewals: list[list[tuple[UUID, int]]] = []
        self.reports: list[Report] = []
        self.renewed = threading.Event()
        self.evicted = threading.Event()
        self.name_is_taken = False
        self.on_renew: Callable[[], list[Order]] = list
        self.on_register: Callable[[], None] = lambda: None
        self.on_leave: Callable[[], None] = lambda: None
        self.on_read: Callable[[str], Iterator[bytes]] = lambda _sha256: iter(())
        self.claimed: Claimed | None = None
        self.usage: Usage | None = None
        self._incarnation = 0

    def register(self, offer: Offer) -> Registration:
        self.asked.append("register")
        self.on_register()
        if self.name_is_taken:
            raise WorkerNameTaken
        self._incarnation += 1
        return Registration(self.worker_id, self._incarnation)

    def renew(
        self, registration: Registration, held: Iterable[tuple[UUID, int]], usage: Usage | None = None
    ) -> list[Order]:
        self.renewals.append(list(held))
        self.usage = usage
        self.renewed.set()
        return self.on_renew()

    def drain(self, registration: Registration) -> None:
        self.asked.append(f"drain {registration.incarnation}")

    def leave(self, registration: Registration) -> None:
        self.asked.append(f"leave {registration.incarnation}")
        self.on_leave()

    def claim(self, hold: Hold) -> Claimed:
        self.asked.append("claim")
        assert self.claimed is not None
        return self.claimed

    def start(self, hold: Hold, receipt: Mapping[str, object]) -> None:
        self.asked.append("start")

    def log(self, hold: Hold, chunks: Sequence[Chunk], progress: Progress | None = None) -> None:
        self.asked.append("log")

    def finish(self, hold: Hold, report: Report) -> Moved | None:
        self.reports.append(report)
        return Moved(hold.execution_id, uuid4(), uuid4(), "failed")

    def read_artifact(self, sha256: str) -> Iterator[bytes]:
        return self.on_read(sha256)

    def store_output(self, hold: Hold, output: StoredOutput, body: IO[bytes]) -> None:
        self.asked.append("store")
