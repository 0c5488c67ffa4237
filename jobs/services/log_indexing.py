"""Turns what programs wrote into segments that can be searched: in small transactions, log by log in turn.

Apart from writing: a run that writes fast does not wait for an index of trigrams. How far a log came is committed with
its segments, so that nothing is indexed twice or left out, and one indexer is at work at a time, whichever comes.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from django.db import connection, transaction

from jobs import conf, sql
from jobs.log_text import Segment, cut_segments
from jobs.models import LogIndexMark
from jobs.protocol import Chunk
from jobs.services.database import bounded
from jobs.services.schedules import database_now

# Less than the interval of the system task.
WITHIN_SECONDS = 4.0
STATEMENT_SECONDS = 20.0
STEP_LOGS = 500
STEP_CHUNKS_OF_EACH = 1000
STEP_CHUNKS = 20_000
STEP_BYTES = 2 * 1024 * 1024

_NIL = UUID(int=0)
_COPY = (
    "COPY jobs_logsegment (day, execution_id, attempt, first_sequence, part, stream, owner_id, job_id, logged_from,"
    " logged_to, offsets, sequences, times, carried, text, folded) FROM STDIN"
)


@dataclass(frozen=True, slots=True)
class IndexResult:
    """`reached_at`: what was stored before it can be searched; None: that is not known yet."""

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
class _Row:
    execution_id: UUID
    attempt: int
    sequence: int
    stream: str
    logged_at: datetime
    data: bytes

    def chunk(self) -> Chunk:
        return Chunk(self.sequence, self.stream, self.logged_at, bytes(self.data))


@dataclass(frozen=True, slots=True)
class _Indexed:
    log: _Log
    indexed_to: int
    carries: Mapping[str, bytes]
    segments: Sequence[Segment]
    complete: bool


@dataclass(frozen=True, slots=True)
class _Step:
    chunks: int = 0
    bytes: int = 0
    segments: int = 0
    finished: bool = False  # with this round
    ours: bool = True  # nobody else is at work


def index_logs(*, within_seconds: float = WITHIN_SECONDS) -> IndexResult:
    """One round over all logs that may have more, or as much of it as there is time for: the next run goes on."""
    deadline, steps = time.monotonic() + within_seconds, [_index_step()]
    while steps[-1].ours and not steps[-1].finished and time.monotonic() < deadline:
        steps.append(_index_step())
    return IndexResult(
        sum(step.chunks for step in steps),
        sum(step.bytes for step in steps),
        sum(step.segments for step in steps),
        steps[-1].finished,
        read_reached_at(),
    )


def read_reached_at() -> datetime | None:
    return LogIndexMark.objects.values_list("reached_at", flat=True).first()


def _index_step() -> _Step:
    with transaction.atomic(), bounded(statement_seconds=STATEMENT_SECONDS):
        mark = _lock_mark()
        if mark is None:
            return _Step(ours=False)
        if mark.round_began_at is None:
            # Before anything is looked at: what is stored later is not promised.
            mark.round_began_at, mark.cursor = database_now(), _NIL
        logs = _read_logs(mark.cursor or _NIL)
        written, cut_at = _read_chunks(logs)
        indexed = [_index_log(log, written.get(log.key, []), cut_at) for log in logs]
        _store([each for each in indexed if each.segments or each.complete or each.indexed_to > each.log.indexed_to])
        finished = cut_at is None and len(logs) < STEP_LOGS
        if finished:
            mark.reached_at, mark.round_began_at, mark.cursor = mark.round_began_at, None, None
        else:
            mark.cursor = cut_at[0] if cut_at else _next_execution(logs)
        mark.save()
    rows = [row for rows in written.values() for row in rows]
    return _Step(len(rows), sum(len(row.data) for row in rows), sum(len(each.segments) for each in indexed), finished)


def _next_execution(logs: Sequence[_Log]) -> UUID:
    """The last one once more, as further attempts of it may follow, unless all were of it."""
    first, last = logs[0].execution_id, logs[-1].execution_id
    return last if first != last else UUID(int=min(last.int + 1, 2**128 - 1))


def _lock_mark() -> LogIndexMark | None:
    """None: another run is at work."""
    LogIndexMark.objects.bulk_create([LogIndexMark()], ignore_conflicts=True)
    return LogIndexMark.objects.select_for_update(skip_locked=True).first()


def _read_logs(cursor: UUID) -> list[_Log]:
    wanted = {"cursor": cursor, "limit": STEP_LOGS, "complete_seconds": conf.LOG_COMPLETE_AFTER_SECONDS}
    return sql.fetch("unindexed_logs", wanted, _Log)


def _read_chunks(logs: Sequence[_Log]) -> tuple[dict[tuple[UUID, int], list[_Row]], tuple[UUID, int] | None]:
    """What follows in each, and the first log of which, or after which, not all was read."""
    rows = sql.fetch(
        "unindexed_chunks",
        {
            "days": [log.day for log in logs],
            "executions": [log.execution_id for log in logs],
            "attempts": [log.attempt for log in logs],
            "reached": [log.indexed_to for log in logs],
            "complete": [log.complete for log in logs],
            "chunks_each": STEP_CHUNKS_OF_EACH,
            "max_chunks": STEP_CHUNKS,
            "max_bytes": STEP_BYTES,
        },
        _Row,
    )
    by_log = defaultdict[tuple[UUID, int], list[_Row]](list)
    for row in rows:
        by_log[row.execution_id, row.attempt].append(row)
    long = (key for key, some in by_log.items() if len(some) == STEP_CHUNKS_OF_EACH)
    if len(rows) == STEP_CHUNKS or sum(len(row.data) for row in rows) >= STEP_BYTES:
        return by_log, min(long, default=(rows[-1].execution_id, rows[-1].attempt))
    return by_log, min(long, default=None)


def _index_log(log: _Log, rows: Sequence[_Row], cut_at: tuple[UUID, int] | None) -> _Indexed:
    taken = [row.chunk() for row in rows]
    carries = {"stdout": bytes(log.stdout_carry), "stderr": bytes(log.stderr_carry)}
    segments, carries = cut_segments(taken, carries)
    reached = taken[-1].sequence if taken else log.indexed_to
    all_read = cut_at is None or log.key < cut_at
    return _Indexed(log, reached, carries, segments, log.complete and all_read)


def _store(indexed: Sequence[_Indexed]) -> None:
    with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        for each in indexed:
            log = each.log
            for part in each.segments:
                copy.write_row(
                    (
                        *(log.day, log.execution_id, log.attempt, part.first_sequence, part.part, part.stream),
                        *(log.owner_id, log.job_id, min(part.times), max(part.times)),
                        *(part.offsets, part.sequences, part.times, part.carried, part.text, part.folded),
                    )
                )
    sql.execute(
        "note_indexed",
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
