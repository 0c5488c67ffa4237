"""Deletes objects that nothing references any more from the object store.

Artifacts are marked first and then deleted (see `artifact_deletion`). The next run continues after a crash, and also
finishes user deletions that were interrupted; while the object store is down, the marks stay. A log pack without logs
never gets any again: its row is deleted first, and then its object is an orphan.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from jobs.db import sql
from jobs.db.clock import database_now
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.errors import StorageUnavailable
from jobs.models import Artifact, Execution, LogPack, Output
from jobs.models.ids import first_id
from jobs.storage import s3
from jobs.storage.artifact_deletion import collect_artifact
from jobs.storage.s3 import StoredObject

logger = logging.getLogger(__name__)

TIME_BUDGET_SECONDS = 60.0
PAGE_ARTIFACTS = 5000
PAGE_PACKS = 5000

_NIL = UUID(int=0)
_GRACE = timedelta(seconds=limits.ORPHAN_GRACE_SECONDS)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """`finished`: all orphans were visited; otherwise time ran out or the object store was unavailable."""

    artifacts: int
    uploads: int
    outputs: int
    log_packs: int
    finished: bool


@dataclass(frozen=True, slots=True)
class _SweptRow:
    id: UUID
    doomed: bool


class _TimeBudget:
    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self.exhausted = False

    def has_time(self) -> bool:
        self.exhausted = self.exhausted or time.monotonic() >= self._deadline
        return not self.exhausted


def sweep_orphans(*, retention: timedelta, within_seconds: float = TIME_BUDGET_SECONDS) -> SweepResult:
    """Mark and delete orphans, at most for the given time."""
    budget, now = _TimeBudget(within_seconds), database_now()
    artifacts = uploads = outputs = log_packs = 0
    try:
        mark_orphans(now, budget.has_time)
        for artifact_id in Artifact.objects.filter(doomed_at__isnull=False).values_list("id", flat=True):
            if not budget.has_time():
                break
            artifacts += collect_artifact(artifact_id)
        uploads = _sweep_prefix(
            s3.UPLOADS_PREFIX, first_id(now - _GRACE), lambda page: _find_orphaned_uploads(page, now), budget
        )
        outputs = _sweep_prefix(s3.OUTPUTS_PREFIX, first_id(now - retention), _find_orphaned_outputs, budget)
        prune_log_packs(now, budget.has_time)
        log_packs = _sweep_prefix(
            s3.LOG_PACKS_PREFIX, first_id(now - _GRACE), lambda page: _find_orphaned_log_packs(page, now), budget
        )
    except StorageUnavailable as error:
        logger.warning("Deleting orphans waits for the object store; nothing is lost: %s", error)
        return SweepResult(artifacts, uploads, outputs, log_packs, finished=False)
    return SweepResult(artifacts, uploads, outputs, log_packs, finished=not budget.exhausted)


def mark_orphans(now: datetime, has_time: Callable[[], bool] = lambda: True) -> int:
    """Mark unreferenced artifacts whose grace period has passed."""
    after, marked = _NIL, 0
    while has_time():
        page = _mark_page(after, now)
        marked += sum(each.doomed for each in page)
        if len(page) < PAGE_ARTIFACTS:
            break
        after = page[-1].id
    return marked


def prune_log_packs(now: datetime, has_time: Callable[[], bool] = lambda: True) -> None:
    """Delete the rows of packs whose logs were all pruned."""
    after = _NIL
    while has_time():
        parameters = {"after": after, "bound": first_id(now - _GRACE), "limit": PAGE_PACKS}
        page = sql.fetch("delete_unused_log_packs", parameters, _SweptRow, timeout_seconds=20)
        if len(page) < PAGE_PACKS:
            break
        after = page[-1].id


def _mark_page(after: UUID, now: datetime) -> list[_SweptRow]:
    with transaction.atomic(), with_timeouts(statement_seconds=20):
        return sql.fetch(
            "doom_orphans",
            {
                "after": after,
                "bound": first_id(now - _GRACE),
                "limit": PAGE_ARTIFACTS,
                "grace_seconds": limits.ORPHAN_GRACE_SECONDS,
            },
            _SweptRow,
        )


def _sweep_prefix(
    prefix: str, before: UUID, find_orphans: Callable[[Sequence[StoredObject]], list[str]], budget: _TimeBudget
) -> int:
    """Delete the orphans under a prefix. Keys begin with ids, which grow with time: recent objects are never listed."""
    deleted = 0
    if not budget.has_time():
        return 0
    for page in s3.list_objects(prefix, before=f"{prefix}{before}"):
        keys = find_orphans(page)
        s3.delete_objects(keys)
        deleted += len(keys)
        if not budget.has_time():
            break
    return deleted


def _find_orphaned_uploads(page: Sequence[StoredObject], now: datetime) -> list[str]:
    """Find uploads of artifacts that are verified, deleted or gone. Unverified ones are deleted with their row."""
    ids = {each.key: s3.parse_upload_key(each.key) for each in page if each.modified_at < now - _GRACE}
    unverified = Artifact.objects.filter(id__in=[i for i in ids.values() if i], verified_at=None, deleted_at=None)
    pending = set(unverified.values_list("id", flat=True))
    return [key for key, artifact_id in ids.items() if artifact_id is not None and artifact_id not in pending]


def _find_orphaned_outputs(page: Sequence[StoredObject]) -> list[str]:
    """Find files of pruned executions and of attempts that did not finish their execution."""
    files = {each.key: found for each in page if (found := s3.parse_output_key(each.key)) is not None}
    executions = {execution_id for execution_id, _, _ in files.values()}
    unfinished = set(Execution.objects.filter(id__in=executions, ended_at__isnull=True).values_list("id", flat=True))
    published = set(
        Output.objects.filter(attempt__execution_id__in=executions).values_list(
            "attempt__execution_id", "attempt__number", "sha256"
        )
    )
    return [key for key, found in files.items() if found[0] not in unfinished and found not in published]


def _find_orphaned_log_packs(page: Sequence[StoredObject], now: datetime) -> list[str]:
    """Find packs without a row. Checks the modification time too: the id may come from a slow clock."""
    old = [each.key for each in page if each.modified_at < now - _GRACE]
    packs = {key: found for key in old if (found := s3.parse_log_pack_key(key)) is not None}
    known = set(LogPack.objects.filter(id__in=packs.values()).values_list("id", flat=True))
    return [key for key, pack_id in packs.items() if pack_id not in known]
