"""The interface between a worker and its control plane; workers use no other.

Every implementation raises `ControlPlaneUnavailable` during an outage, and `StaleAttempt` if the fence rejects a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Protocol
from uuid import UUID

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


class ControlPlane(Protocol):
    @property
    def lease_seconds(self) -> float | None:
        """Return the lease granted by the last registration or renewal; None: the worker's own setting."""

    def register(self, offer: WorkerOffer) -> Registration: ...
    def renew(
        self, registration: Registration, held: Iterable[tuple[UUID, int]], usage: WorkerUsage | None = None
    ) -> list[StopOrder]: ...
    def drain(self, registration: Registration) -> None: ...
    def leave(self, registration: Registration) -> None: ...
    def claim(self, fence: AttemptFence) -> ClaimedRun: ...
    def start(self, fence: AttemptFence, receipt: Mapping[str, object]) -> None: ...
    def log(self, fence: AttemptFence, chunks: Sequence[Chunk], progress: Progress | None = None) -> None: ...
    def finish(self, fence: AttemptFence, report: RunReport) -> MovedExecution | None: ...
    def read_artifact(self, sha256: str) -> Iterator[bytes]: ...
    def store_output(self, fence: AttemptFence, output: StoredOutput, body: IO[bytes]) -> None: ...
