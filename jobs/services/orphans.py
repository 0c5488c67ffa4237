"""Collects what nobody refers to any more in the object store.

Artifacts are marked here and then collected (see `artifact_deletion`): killed in between, the next run goes on, also
where a deletion that somebody asked for was cut off. Without the object store nothing is lost: the marks stay. A pack
that no log refers to is never referred to again: its row goes first, and then its object is an orphan.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from jobs import conf, sql, storage
from jobs.errors import StorageUnavailable
from jobs.models import Artifact, Execution, LogPack, Output
from jobs.models.ids import first_id
from jobs.services.artifact_deletion import collect_artifact
from jobs.services.database import bounded
from jobs.services.schedules import database_now
from jobs.storage import StoredObject

logger = logging.getLogger(__name__)

WITHIN_SECONDS = 60.0
PAGE_ARTIFACTS = 5000
PAGE_PACKS = 5000

_NIL = UUID(int=0)
_GRACE = timedelta(seconds=conf.ORPHAN_GRACE_SECONDS)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """`finished`: all orphans were seen; else time was up or the object store was away, and the next run goes on."""

    artifacts: int
    uploads: int
    outputs: int
    log_packs: int
    finished: bool


@dataclass(frozen=True, slots=True)
class _Looked:
    id: UUID
    doomed: bool


class _Budget:
    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self.spent = False

    def left(self) -> bool:
        self.spent = self.spent or time.monotonic() >= self._deadline
        return not self.spent


def sweep_orphans(*, retention: timedelta, within_seconds: float = WITHIN_SECONDS) -> SweepResult:
    budget, now = _Budget(within_seconds), database_now()
    artifacts = uploads = outputs = log_packs = 0
    try:
        mark_orphans(now, budget.left)
        for artifact_id in Artifact.objects.filter(doomed_at__isnull=False).values_list("id", flat=True):
            if not budget.left():
                break
            artifacts += collect_artifact(artifact_id)
        uploads = _sweep(storage.UPLOADS, first_id(now - _GRACE), lambda page: _dead_uploads(page, now), budget)
        outputs = _sweep(storage.OUTPUTS, first_id(now - retention), _dead_outputs, budget)
        forget_log_packs(now, budget.left)
        log_packs = _sweep(storage.LOG_PACKS, first_id(now - _GRACE), lambda page: _dead_log_packs(page, now), budget)
    except StorageUnavailable as error:
        logger.warning("Orphans stay until the object store is back; nothing is lost: %s", error)
        return SweepResult(artifacts, uploads, outputs, log_packs, finished=False)
    return SweepResult(artifacts, uploads, outputs, log_packs, finished=not budget.spent)


def mark_orphans(now: datetime, go_on: Callable[[], bool] = lambda: True) -> int:
    """Marks the artifacts that nobody has wanted for a while and no job refers to."""
    after, marked = _NIL, 0
    while go_on():
        page = _doom_page(after, now)
        marked += sum(each.doomed for each in page)
        if len(page) < PAGE_ARTIFACTS:
            break
        after = page[-1].id
    return marked


def forget_log_packs(now: datetime, go_on: Callable[[], bool] = lambda: True) -> None:
    """Deletes the rows of packs all of whose logs were pruned."""
    after = _NIL
    while go_on():
        wanted = {"after": after, "bound": first_id(now - _GRACE), "limit": PAGE_PACKS}
        looked = sql.fetch("forget_log_packs", wanted, _Looked, within=20)
        if len(looked) < PAGE_PACKS:
            break
        after = looked[-1].id


def _doom_page(after: UUID, now: datetime) -> list[_Looked]:
    with transaction.atomic(), bounded(statement_seconds=20):
        return sql.fetch(
            "doom_orphans",
            {
                "after": after,
                "bound": first_id(now - _GRACE),
                "limit": PAGE_ARTIFACTS,
                "grace_seconds": conf.ORPHAN_GRACE_SECONDS,
            },
            _Looked,
        )


def _sweep(prefix: str, before: UUID, dead: Callable[[Sequence[StoredObject]], list[str]], budget: _Budget) -> int:
    """Names begin with an id and ids grow with time, so the old ones come first and the young are never listed."""
    deleted = 0
    if not budget.left():
        return 0
    for page in storage.list_objects(prefix, before=f"{prefix}{before}"):
        keys = dead(page)
        storage.delete_objects(keys)
        deleted += len(keys)
        if not budget.left():
            break
    return deleted


def _dead_uploads(page: Sequence[StoredObject], now: datetime) -> list[str]:
    """Uploads of artifacts that are verified, deleted or gone; one that still waits is collected with its row."""
    ids = {each.key: storage.parse_upload_key(each.key) for each in page if each.modified_at < now - _GRACE}
    unverified = Artifact.objects.filter(id__in=[i for i in ids.values() if i], verified_at=None, deleted_at=None)
    waiting = set(unverified.values_list("id", flat=True))
    return [key for key, artifact_id in ids.items() if artifact_id is not None and artifact_id not in waiting]


def _dead_outputs(page: Sequence[StoredObject]) -> list[str]:
    """Files of executions that were pruned, or of attempts that did not win."""
    files = {each.key: found for each in page if (found := storage.parse_output_key(each.key)) is not None}
    executions = {execution_id for execution_id, _, _ in files.values()}
    unfinished = set(Execution.objects.filter(id__in=executions, ended_at__isnull=True).values_list("id", flat=True))
    published = set(
        Output.objects.filter(attempt__execution_id__in=executions).values_list(
            "attempt__execution_id", "attempt__number", "sha256"
        )
    )
    return [key for key, found in files.items() if found[0] not in unfinished and found not in published]


def _dead_log_packs(page: Sequence[StoredObject], now: datetime) -> list[str]:
    """Packs whose logs were pruned, or that nobody came to refer to; an id alone may be of a clock that is behind."""
    old = [each.key for each in page if each.modified_at < now - _GRACE]
    packs = {key: found for key in old if (found := storage.parse_log_pack_key(key)) is not None}
    known = set(LogPack.objects.filter(id__in=packs.values()).values_list("id", flat=True))
    return [key for key, pack_id in packs.items() if pack_id not in known]
