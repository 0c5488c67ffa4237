"""Takes work back from workers that are gone, or that take nothing.

Every pass stamps a row. After a gap in the stamps the database or every beat was away, and leases ended because nobody
could renew them: for one lease nothing is reaped by lease, so that those who live come back first.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db import transaction

from jobs import conf, sql
from jobs.services import endings, transitions
from jobs.services.database import bounded
from jobs.states import Reason

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReapResult:
    workers: int = 0
    executions: int = 0
    unclaimed: int = 0
    released: int = 0
    suspects: int = 0


@dataclass(frozen=True, slots=True)
class _Stamped:
    after_gap: bool


@dataclass(frozen=True, slots=True)
class _Worker:
    id: UUID


@dataclass(frozen=True, slots=True)
class _Orphaned:
    id: UUID
    keep: int
    left: bool  # it said goodbye, and had ended its runs by then


def reap_lost_workers(*, blame: bool = True) -> ReapResult:
    """One pass: ended leases, placements on a former life of a worker or one that drains, messages that nobody took.

    `blame`: messages have reached the workers all the while, so that who took none of them is suspect.
    """
    lease = float(settings.PUNCTUAL_LEASE_SECONDS)
    # Within a third of a lease everybody can still renew in time; a few passes late is a slow beat, not a gap.
    gap = max(lease / 3, conf.REAP_GAP_PASSES * conf.REAP_SECONDS)
    # A stamp that a crash undoes makes the gap longer, never shorter.
    with transaction.atomic(), bounded(statement_seconds=5, durable=False):
        (stamped,) = sql.fetch("stamp_reaping", {"gap_seconds": gap}, _Stamped)
    if stamped.after_gap:
        logger.info("No beat looked after leases for %g s or more: no worker is taken for lost for %g s", gap, lease)
    with transaction.atomic(), bounded(statement_seconds=10):
        reaped = sql.fetch("reap_workers", {"gap_seconds": gap, "lease_seconds": lease}, _Worker)
        orphaned = sql.fetch("orphaned_workers", {}, _Orphaned)
        lost: dict[UUID, int | None] = {row.id: row.keep for row in orphaned if not row.left}
        lost |= dict.fromkeys((worker.id for worker in reaped), None)
        left = {row.id: row.keep for row in orphaned if row.left}
        moved = transitions.lose_held(lost) + transitions.lose_held(left, reason=Reason.RELEASED)
        endings.settle_endings(moved)
        # A placement that raced the beginning of the drain; else the worker's own word has released it.
        released = transitions.release_queued()
    # Apart from the above: a worker is locked before its executions, never after those of another.
    with transaction.atomic(), bounded(statement_seconds=10):
        silent = {"unclaimed_seconds": conf.UNCLAIMED_SECONDS}
        suspects = sql.fetch("suspect_workers", silent, _Worker) if blame else []
        unclaimed = transitions.return_unclaimed()
    for suspect in suspects:
        logger.warning("Worker %s took nothing of what was placed on it; it gets nothing until it does", suspect.id)
    return ReapResult(
        workers=len(reaped), executions=len(moved), unclaimed=unclaimed, released=released, suspects=len(suspects)
    )
