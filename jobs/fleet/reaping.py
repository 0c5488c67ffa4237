"""The reaper: reclaim executions from workers that are gone, or that claim nothing.

Every pass stamps a row. A gap between stamps means that the database or every beat was away, and that leases ended
because no worker could renew: for one lease no worker is marked lost, so that live workers renew first. The same row
holds the database's timeline; after it changes nothing is placed for the longest lease that a worker was granted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import DatabaseError, transaction

from jobs.db import sql
from jobs.db.row_isolation import isolated
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.states import Reason
from jobs.execution import transitions
from jobs.fleet.reclaiming import reclaim_executions
from jobs.models import ReaperStamp

logger = logging.getLogger(__name__)

# How a managed Postgres refuses to reveal the position of its log.
TIMELINE_UNAVAILABLE_ERRORS = (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.FeatureNotSupported)


@dataclass(frozen=True, slots=True)
class ReapResult:
    workers: int = 0
    executions: int = 0
    unclaimed: int = 0
    released: int = 0
    suspects: int = 0
    more: bool = False  # a full batch, or no time left: there may be more to do at once


@dataclass(frozen=True, slots=True)
class _StampResult:
    after_gap: bool


@dataclass(frozen=True, slots=True)
class _Timeline:
    paused: bool
    new_pause_seconds: float | None  # None: no pause begins with this pass


@dataclass(frozen=True, slots=True)
class _OrphanedWorker:
    id: UUID
    keep_incarnation: int
    left: bool  # it deregistered after its runs had finished


def reap_lost_workers(*, mark_suspects: bool = True) -> ReapResult:
    """Run one pass: ended leases, orphaned executions, draining workers, executions that no worker claimed.

    `mark_suspects`: Redis has delivered messages all the while, so a worker that claimed nothing is suspect.
    An error in one part, or with one worker, does not stop the others: each has its own transactions.
    """
    deadline = time.monotonic() + limits.FINISH_PASS_SECONDS
    lease = float(settings.PUNCTUAL_LEASE_SECONDS)
    write_reaper_stamp()
    workers = moved = released = unclaimed = 0
    suspects: list[UUID] = []
    after_failover = False
    with isolated("Detecting a failover"):
        after_failover = _detect_failover(lease)
    with isolated("Marking workers lost"):
        workers = _mark_workers_lost(lease)
    with isolated("Reclaiming executions of lost workers"):
        moved = _reclaim_from_lost_workers(deadline)
    # Only placements that raced the start of the drain; the drain released the others.
    with isolated("Releasing executions from draining workers"), _short_transaction():
        released = transitions.release_queued(limits.FINISH_BATCH_EXECUTIONS)
    # A transaction of its own: a worker is locked before its executions, never after those of another worker.
    with isolated("Returning unclaimed executions"), _short_transaction():
        silent = {"unclaimed_seconds": limits.UNCLAIMED_TIMEOUT_SECONDS}
        suspects = sql.fetch_ids("mark_suspect_workers", silent) if mark_suspects and not after_failover else []
        # The worker may run a queued execution (its claim was lost): after the return its next renewal orders a stop.
        unclaimed = transitions.return_unclaimed(limits.FINISH_BATCH_EXECUTIONS, include_recent=after_failover)
    for suspect in suspects:
        logger.warning("Worker %s claimed nothing of what was placed on it; it gets nothing until it does", suspect)
    more = time.monotonic() >= deadline or limits.FINISH_BATCH_EXECUTIONS in (released, unclaimed)
    return ReapResult(workers, moved, unclaimed, released, len(suspects), more)


@contextmanager
def _short_transaction() -> Iterator[None]:
    with transaction.atomic(), with_timeouts(statement_seconds=5):
        yield


def write_reaper_stamp() -> None:
    """Record that Postgres and a beat are there; a stamp that a crash undoes makes a gap longer, never shorter."""
    gap, lease = _gap_seconds(), float(settings.PUNCTUAL_LEASE_SECONDS)
    with transaction.atomic(), with_timeouts(statement_seconds=5, durable=False):
        (stamped,) = sql.fetch("write_reaper_stamp", {"gap_seconds": gap}, _StampResult)
    if stamped.after_gap:
        logger.info("No beat checked leases for %g s or more: no worker is marked lost for %g s", gap, lease)


def _gap_seconds() -> float:
    """A third of a lease, in which every worker can still renew in time; a beat a few passes late is no gap."""
    return max(float(settings.PUNCTUAL_LEASE_SECONDS) / 3, limits.REAP_GAP_PASSES * limits.REAP_INTERVAL_SECONDS)


def _detect_failover(lease: float) -> bool:
    """Return True while nothing is placed because the database was promoted or restored."""
    try:
        with transaction.atomic(), with_timeouts(statement_seconds=5, durable=False):
            leases = {"lease_seconds": lease, "max_lease_seconds": limits.MAX_LEASE_SECONDS}
            (timeline,) = sql.fetch("detect_failover", leases, _Timeline)
    except DatabaseError as error:
        if not isinstance(error.__cause__, TIMELINE_UNAVAILABLE_ERRORS):
            raise
        # Placement compares with the stored timeline. A standby, which hides it as well, refuses this update.
        with _short_transaction():
            ReaperStamp.objects.filter(timeline__isnull=False).update(timeline=None)
        _warn_timeline_unavailable(str(error))
        return False
    if (seconds := timeline.new_pause_seconds) is not None:
        logger.warning("Postgres has a new timeline (a failover or a restore): nothing is placed for %.0f s", seconds)
    return timeline.paused


@cache
def _warn_timeline_unavailable(why: str) -> None:
    """Warn once in each process."""
    logger.warning("Postgres hides its timeline, so a failover goes unnoticed: %s", why.strip())


def _mark_workers_lost(lease: float) -> int:
    """Fence workers whose lease has ended; this pass or a later one reclaims their executions."""
    leases = {"lease_seconds": lease, "max_lease_seconds": limits.MAX_LEASE_SECONDS}
    ended = leases | {"gap_seconds": _gap_seconds(), "limit": limits.REAP_BATCH_WORKERS}
    with _short_transaction():
        return len(sql.fetch_ids("mark_lost_workers", ended))


def _reclaim_from_lost_workers(deadline: float) -> int:
    with _short_transaction():
        orphaned = sql.fetch("find_orphaned_workers", {"limit": limits.REAP_BATCH_WORKERS}, _OrphanedWorker)
    moved, stamped_at = 0, time.monotonic()
    for worker in orphaned:
        if time.monotonic() >= deadline:
            break
        with isolated(f"Reclaiming the executions of worker {worker.id}"):
            reason = Reason.RELEASED if worker.left else Reason.LOST
            moved += reclaim_executions(worker.id, worker.keep_incarnation, reason=reason, deadline=deadline)
        if time.monotonic() - stamped_at > limits.REAP_INTERVAL_SECONDS:
            # A slow worker must not look like an absence of beats.
            write_reaper_stamp()
            stamped_at = time.monotonic()
    return moved
