"""Turns log chunks into searchable segments, in small transactions.

Separate from appending, so that a run that writes fast does not wait for the trigram index. The position in each log is
committed with its segments, so nothing is indexed twice or skipped. One indexer runs at a time.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from django.db import connection, transaction

from jobs.db import sql
from jobs.db.clock import database_now
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.worker_protocol import Chunk
from jobs.logs.segments import Segment, cut_segments
from jobs.models import LogIndexMark

# Less than the interval of the system task.
TIME_BUDGET_SECONDS = 4.0
STATEMENT_TIMEOUT_SECONDS = 20.0
STEP_LOGS = 500
STEP_CHUNKS_PER_LOG = 1000
STEP_CHUNKS = 20_000
STEP_BYTES = 2 * 1024 * 1024

_FIRST_EXECUTION_ID = UUID(int=0)
_COPY_STATEMENT = (
    "COPY jobs_logsegment (day, execution_id, attempt, first_sequence, part, stream, owner_id, job_id, logged_from,"
    " logged_to, offsets, sequences, times, carried, text, folded) FROM STDIN"
)


@dataclass(frozen=True, slots=True)
class IndexResult:
    """`reached_at`: chunks stored before this time are searchable; None: not known yet."""

    chunks: int
    bytes: int
    segments: int
    finished: bool
    reached_at: datetime | None


@dataclass(frozen=True, slots=True)
class _Log:
    execution_id: UUID
    attempt: int
    day: date
    owner_id: int
    job_id: UUID
    indexed_to: int
    stdout_carry: bytes
    stderr_carry: bytes
    complete: bool

    @property
    def key(self) -> tuple[UUID, int]:
        return self.execution_id, self.attempt


@dataclass(frozen=True, slots=True)
class _ChunkRow:
    execution_id: UUID
    attempt: int
    sequence: int
    stream: str
    logged_at: datetime
    data: bytes

    def chunk(self) -> Chunk:
        return Chunk(self.sequence, self.stream, self.logged_at, bytes(self.data))


@dataclass(frozen=True, slots=True)
class _IndexedLog:
    log: _Log
    indexed_to: int
    carries: Mapping[str, bytes]
    segments: Sequence[Segment]
    complete: bool


@dataclass(frozen=True, slots=True)
class _StepResult:
    chunks: int = 0
    bytes: int = 0
    segments: int = 0
    finished: bool = False  # the round is complete
    ours: bool = True  # False: another indexer is running


def index_logs(*, within_seconds: float = TIME_BUDGET_SECONDS) -> IndexResult:
    """Index one round over all unindexed logs; out of time, the next run continues the round."""
    deadline, steps = time.monotonic() + within_seconds, [_index_step()]
    while steps[-1].ours and not steps[-1].finished and time.monotonic() < deadline:
        steps.append(_index_step())
    return IndexResult(
        sum(step.chunks for step in steps),
        sum(step.bytes for step in steps),
        sum(step.segments for step in steps),
        steps[-1].finished,
        read_indexed_until(),
    )


def read_indexed_until() -> datetime | None:
    return LogIndexMark.objects.values_list("reached_at", flat=True).first()


def _index_step() -> _StepResult:
    with transaction.atomic(), with_timeouts(statement_seconds=STATEMENT_TIMEOUT_SECONDS):
        mark = _lock_mark()
        if mark is None:
            return _StepResult(ours=False)
        if mark.round_began_at is None:
            # Before reading: the round promises only chunks stored before this time.
            mark.round_began_at, mark.cursor = database_now(), _FIRST_EXECUTION_ID
        logs = _read_logs(mark.cursor or _FIRST_EXECUTION_ID)
        written, cut_at = _read_chunks(logs)
        indexed = [_index_log(log, written.get(log.key, []), cut_at) for log in logs]
        _store_segments(
            [each for each in indexed if each.segments or each.complete or each.indexed_to > each.log.indexed_to]
        )
        finished = cut_at is None and len(logs) < STEP_LOGS
        if finished:
            mark.reached_at, mark.round_began_at, mark.cursor = mark.round_began_at, None, None
        else:
            mark.cursor = cut_at[0] if cut_at else _next_cursor(logs)
        mark.save()
    rows = [row for rows in written.values() for row in rows]
    return _StepResult(
        len(rows), sum(len(row.data) for row in rows), sum(len(each.segments) for each in indexed), finished
    )


def _next_cursor(logs: Sequence[_Log]) -> UUID:
    """Return the last execution again, as it may have more attempts, unless all logs belong to it."""
    first, last = logs[0].execution_id, logs[-1].execution_id
    return last if first != last else UUID(int=min(last.int + 1, 2**128 - 1))


def _lock_mark() -> LogIndexMark | None:
    """Return None if another indexer is running."""
    LogIndexMark.objects.bulk_create([LogIndexMark()], ignore_conflicts=True)
    return LogIndexMark.objects.select_for_update(skip_locked=True).first()


def _read_logs(cursor: UUID) -> list[_Log]:
    parameters = {"cursor": cursor, "limit": STEP_LOGS, "complete_seconds": limits.LOG_COMPLETE_AFTER_SECONDS}
    return sql.fetch("read_unindexed_logs", parameters, _Log)


def _read_chunks(logs: Sequence[_Log]) -> tuple[dict[tuple[UUID, int], list[_ChunkRow]], tuple[UUID, int] | None]:
    """Return the next chunks of each log, and the first log at or after which chunks are left (None: all read)."""
    rows = sql.fetch(
        "read_unindexed_chunks",
        {
            "days": [log.day for log in logs],
            "executions": [log.execution_id for log in logs],
            "attempts": [log.attempt for log in logs],
            "reached": [log.indexed_to for log in logs],
            "complete": [log.complete for log in logs],
            "chunks_each": STEP_CHUNKS_PER_LOG,
            "max_chunks": STEP_CHUNKS,
            "max_bytes": STEP_BYTES,
        },
        _ChunkRow,
    )
    by_log = defaultdict[tuple[UUID, int], list[_ChunkRow]](list)
    for row in rows:
        by_log[row.execution_id, row.attempt].append(row)
    unfinished = (key for key, some in by_log.items() if len(some) == STEP_CHUNKS_PER_LOG)
    if len(rows) == STEP_CHUNKS or sum(len(row.data) for row in rows) >= STEP_BYTES:
        return by_log, min(unfinished, default=(rows[-1].execution_id, rows[-1].attempt))
    return by_log, min(unfinished, default=None)


def _index_log(log: _Log, rows: Sequence[_ChunkRow], cut_at: tuple[UUID, int] | None) -> _IndexedLog:
    carries = {"stdout": bytes(log.stdout_carry), "stderr": bytes(log.stderr_carry)}
    segments, carries = cut_segments([row.chunk() for row in rows], carries)
    indexed_to = rows[-1].sequence if rows else log.indexed_to
    all_read = cut_at is None or log.key < cut_at
    return _IndexedLog(log, indexed_to, carries, segments, log.complete and all_read)


def _store_segments(indexed: Sequence[_IndexedLog]) -> None:
    with connection.cursor() as cursor, cursor.copy(_COPY_STATEMENT) as copy:
        for each in indexed:
            log = each.log
            for segment in each.segments:
                copy.write_row(
                    (
                        *(log.day, log.execution_id, log.attempt, segment.first_sequence, segment.part, segment.stream),
                        *(log.owner_id, log.job_id, min(segment.times), max(segment.times), segment.offsets),
                        *(segment.sequences, segment.times, segment.carried, segment.text, segment.folded),
                    )
                )
    sql.execute(
        "record_indexed",
        {
            "executions": [each.log.execution_id for each in indexed],
            "attempts": [each.log.attempt for each in indexed],
            "from": [each.log.indexed_to for each in indexed],
            "to": [each.indexed_to for each in indexed],
            "stdout": [each.carries["stdout"] for each in indexed],
            "stderr": [each.carries["stderr"] for each in indexed],
            "complete": [each.complete for each in indexed],
        },
    )
