"""Archives the logs of finished attempts to S3, many per object (a pack).

The object is stored first; then one transaction records the place of each log that has none yet. So every recorded
place is readable. Two concurrent archivers, or one killed in between, leave an unused object, which the orphan sweep
deletes. While the object store is down, logs stay in Postgres.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from typing import IO
from uuid import UUID

from django.db import DatabaseError, transaction
from django.db.models.functions import Now

from jobs.db import sql
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.errors import StorageUnavailable
from jobs.domain.worker_protocol import Chunk
from jobs.logs.archive_format import MemberHeader, write_member
from jobs.models import AttemptLog, LogPack
from jobs.models.ids import new_id
from jobs.storage import s3

logger = logging.getLogger(__name__)

TIME_BUDGET_SECONDS = 20.0
STATEMENT_TIMEOUT_SECONDS = 10.0
SETTLE_BATCH_LOGS = 5000
PAGE_CHUNKS = 2000
PAGE_BYTES = 4 * 1024**2
# Larger packs are spooled to an unnamed file.
MEMORY_BYTES = 4 * 1024**2
HASH_BYTES = 1024**2


@dataclass(slots=True)
class ArchiveResult:
    """`finished`: every complete log is archived; otherwise time ran out or the object store was unavailable."""

    logs: int = 0
    packs: int = 0
    bytes: int = 0
    settled: int = 0
    failed: int = 0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class _Log:
    day: date
    execution_id: UUID
    attempt: int
    truncated: bool
    chunks: int
    last: int


@dataclass(frozen=True, slots=True)
class _ChunkRow:
    n: int
    sequence: int
    stream: str
    logged_at: datetime
    data: bytes


@dataclass(frozen=True, slots=True)
class _PackedLog:
    log: _Log
    offset: int
    length: int


def archive_logs(*, within_seconds: float = TIME_BUDGET_SECONDS) -> ArchiveResult:
    """Archive complete logs, oldest first, until none is left or time runs out."""
    deadline, result = time.monotonic() + within_seconds, ArchiveResult()
    # Logs that were indexed only after they were archived.
    result.settled = sql.execute("settle_logs", {"limit": SETTLE_BATCH_LOGS}, timeout_seconds=STATEMENT_TIMEOUT_SECONDS)
    after: _Log | None = None
    try:
        while not result.finished and time.monotonic() < deadline:
            if logs := _read_unarchived(after):
                after = logs[-1]
                _archive_batch(logs, deadline, result)
            else:
                result.finished = True
    except StorageUnavailable as error:
        logger.warning("Archiving waits for the object store; logs stay in Postgres: %s", error)
    return result


def _read_unarchived(after: _Log | None) -> list[_Log]:
    parameters = {
        "day": after.day if after else date.min,
        "execution_id": after.execution_id if after else UUID(int=0),
        "attempt": after.attempt if after else 0,
        "limit": limits.LOG_PACK_LOGS,
        "complete_seconds": limits.LOG_COMPLETE_AFTER_SECONDS,
        "retry_seconds": limits.LOG_ARCHIVE_RETRY_SECONDS,
    }
    return sql.fetch("read_unarchived_logs", parameters, _Log, timeout_seconds=STATEMENT_TIMEOUT_SECONDS)


def _archive_batch(logs: Sequence[_Log], deadline: float, result: ArchiveResult) -> None:
    chunks, remaining = _ChunkReader(logs), iter(logs)
    log = next(remaining, None)
    while log is not None and time.monotonic() < deadline:
        with tempfile.SpooledTemporaryFile(MEMORY_BYTES) as pack:
            places = []
            while log is not None and pack.tell() < limits.LOG_PACK_BYTES and time.monotonic() < deadline:
                place = _write_log(log, chunks, pack)
                if place is None:
                    result.failed += 1
                else:
                    places.append(place)
                log = next(remaining, None)
            if places:
                result.bytes += pack.tell()
                result.packs += 1
                result.logs += _upload_pack(pack, places)


def _write_log(log: _Log, chunks: _ChunkReader, pack: IO[bytes]) -> _PackedLog | None:
    """Append a log to the pack. None: it changed or could not be read; a later run retries it."""
    offset = pack.tell()
    header = MemberHeader(log.execution_id, log.attempt, log.chunks, log.truncated)
    try:
        if write_member(header, chunks.read(log), pack) == log.chunks:
            return _PackedLog(log, offset, pack.tell() - offset)
        logger.info("Log of %s attempt %d changed while it was read; archiving it later", log.execution_id, log.attempt)
    except DatabaseError as error:
        logger.warning("Cannot read the log of %s attempt %d: %s", log.execution_id, log.attempt, error)
        AttemptLog.objects.filter(execution_id=log.execution_id, attempt=log.attempt).update(archive_failed_at=Now())
    pack.seek(offset)
    pack.truncate()
    return None


def _upload_pack(pack: IO[bytes], places: Sequence[_PackedLog]) -> int:
    pack_id, size = new_id(), pack.tell()
    pack.seek(0)
    s3.put_log_pack(pack_id, _compute_sha256(pack), size, pack)
    return _record_pack(pack_id, size, places)


def _compute_sha256(pack: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while piece := pack.read(HASH_BYTES):
        digest.update(piece)
    pack.seek(0)
    return digest.hexdigest()


def _record_pack(pack_id: UUID, size: int, places: Sequence[_PackedLog]) -> int:
    with transaction.atomic(), with_timeouts(statement_seconds=STATEMENT_TIMEOUT_SECONDS):
        LogPack.objects.bulk_create([LogPack(id=pack_id, size=size)])
        placed = sql.execute(
            "record_packed_logs",
            {
                "pack_id": pack_id,
                "execution_ids": [place.log.execution_id for place in places],
                "attempts": [place.log.attempt for place in places],
                "offsets": [place.offset for place in places],
                "lengths": [place.length for place in places],
                "lasts": [place.log.last for place in places],
            },
        )
        if not placed:
            # Another archiver was faster with every log: the sweep deletes this object.
            transaction.set_rollback(True)
    return placed


class _ChunkReader:
    """Reads the chunks of several logs in pages that span logs."""

    def __init__(self, logs: Sequence[_Log]) -> None:
        self._logs = logs
        self._numbers = {log: number for number, log in enumerate(logs)}
        self._page: dict[int, list[_ChunkRow]] = {}

    def read(self, log: _Log) -> Iterator[Chunk]:
        """Yield the chunks of a log. Call it once per log, in order."""
        number, left, after = self._numbers[log], log.chunks, -1
        while left > 0:
            if number not in self._page:
                self._load_page(number, after)
            rows = self._page.pop(number, [])
            if not rows:
                return
            for row in rows:
                yield Chunk(row.sequence, row.stream, row.logged_at, row.data)
            left -= len(rows)
            after = rows[-1].sequence

    def _load_page(self, number: int, after: int) -> None:
        try:
            rows = self._fetch(self._logs[number:], after)
        except DatabaseError:
            # Read this log alone: another unreadable log must not fail it.
            rows = self._fetch(self._logs[number : number + 1], after)
        self._page = {number + n - 1: list(of_one) for n, of_one in groupby(rows, lambda row: row.n)}

    def _fetch(self, logs: Sequence[_Log], after: int) -> list[_ChunkRow]:
        parameters = {
            "days": [log.day for log in logs],
            "execution_ids": [log.execution_id for log in logs],
            "attempts": [log.attempt for log in logs],
            "after": after,
            "max_chunks": PAGE_CHUNKS,
            "max_bytes": PAGE_BYTES,
        }
        return sql.fetch("read_chunks_to_pack", parameters, _ChunkRow, timeout_seconds=STATEMENT_TIMEOUT_SECONDS)
