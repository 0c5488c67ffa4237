"""Moves the logs of attempts that ended into the archive, many to an object.

The object is stored first, then one transaction writes where each log lies in it, to logs that have no place yet. So
what has a place can be read there; of two at once, or of one killed in between, an object remains that nobody needs,
and those are collected. Without the object store logs wait where they are.
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

from jobs import conf, sql, storage
from jobs.errors import StorageUnavailable
from jobs.log_archive import Heading, write_member
from jobs.models import AttemptLog, LogPack
from jobs.models.ids import new_id
from jobs.protocol import Chunk
from jobs.services.database import bounded

logger = logging.getLogger(__name__)

WITHIN_SECONDS = 20.0
STATEMENT_SECONDS = 10.0
SETTLE_LOGS = 5000
PAGE_CHUNKS = 2000
PAGE_BYTES = 4 * 1024**2
# So much of a pack is in memory; a larger one is a file without a name.
MEMORY_BYTES = 4 * 1024**2
HASH_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """`finished`: all that was complete is archived; else time was up or the object store was away."""

    logs: int
    packs: int
    bytes: int
    settled: int
    failed: int
    finished: bool


@dataclass(frozen=True, slots=True)
class _Log:
    day: date
    execution_id: UUID
    attempt: int
    truncated: bool
    chunks: int
    last: int


@dataclass(frozen=True, slots=True)
class _Row:
    n: int
    sequence: int
    stream: str
    logged_at: datetime
    data: bytes


@dataclass(frozen=True, slots=True)
class _Place:
    log: _Log
    offset: int
    length: int


@dataclass(slots=True)
class _Done:
    logs: int = 0
    packs: int = 0
    bytes: int = 0
    failed: int = 0


def archive_logs(*, within_seconds: float = WITHIN_SECONDS) -> ArchiveResult:
    deadline, settled, done, finished = time.monotonic() + within_seconds, settle_logs(), _Done(), False
    after: _Log | None = None
    try:
        while time.monotonic() < deadline:
            taken = _take(after)
            if not taken:
                finished = True
                break
            after = taken[-1]
            _archive(taken, deadline, done)
    except StorageUnavailable as error:
        logger.warning("Logs are archived once the object store is back; nothing is lost: %s", error)
    return ArchiveResult(done.logs, done.packs, done.bytes, settled, done.failed, finished)


def settle_logs() -> int:
    """What was archived before it could be searched."""
    return sql.execute("settle_logs", {"limit": SETTLE_LOGS}, within=STATEMENT_SECONDS)


def _take(after: _Log | None) -> list[_Log]:
    wanted = {
        "day": after.day if after else date.min,
        "execution_id": after.execution_id if after else UUID(int=0),
        "attempt": after.attempt if after else 0,
        "limit": conf.LOG_PACK_LOGS,
        "complete_seconds": conf.LOG_COMPLETE_AFTER_SECONDS,
        "retry_seconds": conf.LOG_ARCHIVE_RETRY_SECONDS,
    }
    return sql.fetch("take_unarchived", wanted, _Log, within=STATEMENT_SECONDS)


def _archive(logs: Sequence[_Log], deadline: float, done: _Done) -> None:
    chunks, remaining = _Chunks(logs), iter(logs)
    log = next(remaining, None)
    while log is not None and time.monotonic() < deadline:
        with tempfile.SpooledTemporaryFile(MEMORY_BYTES) as pack:
            places = []
            while log is not None and pack.tell() < conf.LOG_PACK_BYTES and time.monotonic() < deadline:
                place = _write(log, chunks, pack)
                if place is None:
                    done.failed += 1
                else:
                    places.append(place)
                log = next(remaining, None)
            if places:
                done.bytes += pack.tell()
                done.packs += 1
                done.logs += _store(pack, places)


def _write(log: _Log, chunks: _Chunks, pack: IO[bytes]) -> _Place | None:
    """None: it could not be read as it was found, and is left for another time."""
    offset = pack.tell()
    heading = Heading(log.execution_id, log.attempt, log.chunks, log.truncated)
    try:
        if write_member(heading, chunks.of(log), pack) == log.chunks:
            return _Place(log, offset, pack.tell() - offset)
        logger.info("The log of %s attempt %d has just changed", log.execution_id, log.attempt)
    except DatabaseError as error:
        logger.warning("The log of %s attempt %d cannot be read: %s", log.execution_id, log.attempt, error)
        AttemptLog.objects.filter(execution_id=log.execution_id, attempt=log.attempt).update(archive_failed_at=Now())
    pack.seek(offset)
    pack.truncate()
    return None


def _store(pack: IO[bytes], places: Sequence[_Place]) -> int:
    pack_id, size = new_id(), pack.tell()
    pack.seek(0)
    storage.put_log_pack(pack_id, _hash(pack), size, pack)
    return _place(pack_id, size, places)


def _hash(pack: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while piece := pack.read(HASH_BYTES):
        digest.update(piece)
    pack.seek(0)
    return digest.hexdigest()


def _place(pack_id: UUID, size: int, places: Sequence[_Place]) -> int:
    with transaction.atomic(), bounded(statement_seconds=STATEMENT_SECONDS):
        LogPack.objects.bulk_create([LogPack(id=pack_id, size=size)])
        placed = sql.execute(
            "place_logs",
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
            # Somebody else was faster with all of them: the object is an orphan as any.
            transaction.set_rollback(True)
    return placed


class _Chunks:
    """The chunks of logs in their order, read in pages that go from one log to the next."""

    def __init__(self, logs: Sequence[_Log]) -> None:
        self._logs = logs
        self._numbers = {log: number for number, log in enumerate(logs)}
        self._page: dict[int, list[_Row]] = {}

    def of(self, log: _Log) -> Iterator[Chunk]:
        """Each log once, and in order."""
        number, left, after = self._numbers[log], log.chunks, -1
        while left > 0:
            if number not in self._page:
                self._read(number, after)
            rows = self._page.pop(number, [])
            if not rows:
                return
            for row in rows:
                yield Chunk(row.sequence, row.stream, row.logged_at, row.data)
            left -= len(rows)
            after = rows[-1].sequence

    def _read(self, number: int, after: int) -> None:
        try:
            rows = self._fetch(self._logs[number:], after)
        except DatabaseError:
            # One that cannot be read must not take the others with it: each is asked for alone.
            rows = self._fetch(self._logs[number : number + 1], after)
        self._page = {number + n - 1: list(of_one) for n, of_one in groupby(rows, lambda row: row.n)}

    def _fetch(self, logs: Sequence[_Log], after: int) -> list[_Row]:
        wanted = {
            "days": [log.day for log in logs],
            "execution_ids": [log.execution_id for log in logs],
            "attempts": [log.attempt for log in logs],
            "after": after,
            "max_chunks": PAGE_CHUNKS,
            "max_bytes": PAGE_BYTES,
        }
        return sql.fetch("chunks_to_pack", wanted, _Row, within=STATEMENT_SECONDS)
