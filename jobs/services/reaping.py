"""Takes work back from workers that are gone."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from jobs import sql
from jobs.services import endings, transitions
from jobs.services.database import bounded


@dataclass(frozen=True, slots=True)
class ReapResult:
    workers: int = 0
    executions: int = 0
    unclaimed: int = 0


@dataclass(frozen=True, slots=True)
class _Worker:
    id: UUID


@dataclass(frozen=True, slots=True)
class _Orphaned:
    id: UUID
    keep: int | None


def reap_lost_workers() -> ReapResult:
    """One pass: ended leases, placements on a former life of a worker, and messages that nobody ever took."""
    with transaction.atomic(), bounded(statement_seconds=10):
        lost = {worker.id: None for worker in sql.fetch("reap_workers", {}, _Worker)}
        orphaned = {row.id: row.keep for row in sql.fetch("orphaned_workers", {}, _Orphaned)}
        moved = transitions.lose_held({**orphaned, **lost})
        endings.settle_endings(moved)
        unclaimed = transitions.return_unclaimed()
    return ReapResult(workers=len(lost), executions=len(moved), unclaimed=unclaimed)
