"""Waiting claims of a process: one read of Postgres a second finds which of them have something to claim or to stop.

A worker asks again as soon as its wait has ended. The process remembers for a moment which workers the last read found
idle, so that the next request waits without reading anything first. Invariant: remembering admits a request only to
the wait; whatever it then claims is read and checked in Postgres at that moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from jobs.db import sql
from jobs.db.wakeups import worker_channel
from jobs.domain import limits
from jobs.domain.worker_protocol import Registration
from jobs.models import ApiToken


@dataclass(frozen=True, slots=True, eq=False)
class WaitingClaim:
    registration: Registration
    held: Sequence[tuple[UUID, int]]
    token: ApiToken
    digest: str  # of the token's secret
    online: bool  # False: it is draining


@dataclass(frozen=True, slots=True)
class _IdleWorker:
    claim: WaitingClaim
    seen_at: float


@dataclass(frozen=True, slots=True)
class _ChangedClaim:
    position: int


class WaitingClaims:
    def __init__(self) -> None:
        self._waiting: set[WaitingClaim] = set()
        self._idle: dict[UUID, _IdleWorker] = {}
        self._lock = threading.Lock()

    @property
    def interval_seconds(self) -> float:
        return limits.CLAIM_POLL_SECONDS

    def enter(self, claim: WaitingClaim) -> None:
        with self._lock:
            self._waiting.add(claim)

    def leave(self, claim: WaitingClaim) -> None:
        with self._lock:
            self._waiting.discard(claim)

    def find_idle(self, worker_id: UUID) -> WaitingClaim | None:
        """Return the last claim of a worker that the last read found idle and entitled to wait."""
        idle = self._idle.get(worker_id)
        fresh = idle is not None and time.monotonic() - idle.seen_at < limits.IDLE_WORKER_SECONDS
        return idle.claim if idle is not None and fresh else None

    def forget(self, worker_id: UUID) -> None:
        self._idle.pop(worker_id, None)

    def find_changed(self) -> set[str]:
        """Read once for all waiting claims; return the channels of those that have something to read."""
        with self._lock:
            waiting = list(self._waiting)
        began = time.monotonic()
        self._drop_stale(began)
        if not waiting:
            return set()
        positions = {row.position for row in sql.fetch("find_changed_claims", _list_claims(waiting), _ChangedClaim)}
        for position, claim in enumerate(waiting, start=1):
            if position in positions:
                self.forget(claim.registration.worker_id)
            else:
                self._idle[claim.registration.worker_id] = _IdleWorker(claim, began)
        return {worker_channel(waiting[position - 1].registration.worker_id) for position in positions}

    def _drop_stale(self, now: float) -> None:
        stale = [
            worker_id
            for worker_id, idle in list(self._idle.items())
            if now - idle.seen_at >= limits.IDLE_WORKER_SECONDS
        ]
        for worker_id in stale:
            self.forget(worker_id)


def _list_claims(waiting: Sequence[WaitingClaim]) -> dict[str, object]:
    held = [
        (position, execution_id, attempt)
        for position, claim in enumerate(waiting, start=1)
        for execution_id, attempt in claim.held
    ]
    return {
        "worker_ids": [claim.registration.worker_id for claim in waiting],
        "incarnations": [claim.registration.incarnation for claim in waiting],
        "token_ids": [claim.token.id for claim in waiting],
        "online": [claim.online for claim in waiting],
        "held_by": [position for position, _, _ in held],
        "execution_ids": [execution_id for _, execution_id, _ in held],
        "attempts": [attempt for _, _, attempt in held],
    }


@lru_cache(maxsize=1)
def waiting_claims() -> WaitingClaims:
    return WaitingClaims()
