"""Appends log chunks to Postgres and reads pages of a log from Postgres or the archive.

Memory holds one page at a time, and a slow reader holds no database connection between pages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import takewhile
from uuid import UUID

from jobs.db import sql, wakeups
from jobs.db.transactions import release_connection
from jobs.db.waiting import Steps
from jobs.domain import limits
from jobs.domain.errors import NotFound, StaleAttempt
from jobs.domain.worker_protocol import AttemptFence, Chunk, Progress, format_log_cut
from jobs.execution.waiters import await_change
from jobs.logs.archive_reading import read_archived

PAGE_CHUNKS = 1000
PAGE_BYTES = 1024 * 1024
# Smaller, because a client that stops reading a stream keeps one page of it in memory.
STREAMED_PAGE_BYTES = 256 * 1024
BEYOND_LAST_SEQUENCE = 2**31
# A batch of chunks may be a megabyte.
STATEMENT_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The state of one attempt's log."""

    attempt: int  # 0: no attempt yet
    day: date | None  # the partition of its chunks; None: the attempt was never claimed
    truncated: bool
    ended: bool  # no chunk will be added


@dataclass(frozen=True, slots=True)
class Page:
    """Chunks in order. An empty page of an ended attempt is the end of the log."""

    status: LogStatus
    chunks: Sequence[Chunk]


def append_chunks(fence: AttemptFence, chunks: Sequence[Chunk], progress: Progress | None = None) -> None:
    """Append chunks up to the log's size limit, and record the run's progress in the same transaction.

    A line marks where a log that exceeds the limit was cut.
    """
    if not chunks and progress is None:
        return
    parameters = fence.parameters() | {
        "sequences": [c.sequence for c in chunks],
        "streams": [c.stream for c in chunks],
        "times": [c.logged_at for c in chunks],
        "data": [c.data for c in chunks],
    }
    statements = []
    if progress is not None:
        # First: finishing an attempt also locks the execution before the attempt.
        statements.append("report_progress")
        parameters |= {"percent": progress.percent, "message": progress.message}
    if chunks:
        statements.append("append_log")
        parameters |= _append_limits()
    if not sql.execute_together(statements, parameters):
        raise StaleAttempt
    if chunks:
        wakeups.wake_log_followers(fence.execution_id)


def _append_limits() -> dict[str, object]:
    return {
        "max_bytes": limits.MAX_LOG_BYTES,
        "max_chunks": limits.MAX_LOG_CHUNKS,
        "chunk_bytes": limits.LOG_CHUNK_OVERHEAD_BYTES,
        "full_bytes": limits.FULL_OWNER_LOG_BYTES,
        "cut_mark": format_log_cut(f"an attempt may write {limits.MAX_LOG_BYTES // 1024**2} MB"),
        "full_mark": format_log_cut(
            "the owner's storage is full; delete artifacts or outputs, or ask for a larger quota (GET /api/v1/usage)"
        ),
    }


def read_chunks(
    execution_id: UUID, attempt: int | None, *, after: int = -1, stream: str | None = None
) -> Iterator[Chunk]:
    """Yield the log of one attempt (default: the latest), holding one page in memory."""
    status = read_log_status(execution_id, attempt)
    while chunks := _read_after(execution_id, status, after, stream, STREAMED_PAGE_BYTES):
        release_connection()
        yield from chunks
        after = chunks[-1].sequence
    # Regardless of `status.ended`: the attempt may have ended since the status was read.
    yield from read_archived(execution_id, status.attempt, after=after, stream=stream)


def read_page(
    execution_id: UUID,
    attempt: int | None,
    *,
    after: int = -1,
    stream: str | None = None,
    max_bytes: int | None = None,
) -> Page:
    """Return the chunks after a sequence. Default: the latest attempt and PAGE_BYTES."""
    max_bytes = PAGE_BYTES if max_bytes is None else max_bytes
    page = read_live_page(execution_id, attempt, after=after, stream=stream, max_bytes=max_bytes)
    if page.chunks or not page.status.ended:
        return page
    archived = read_archived(execution_id, page.status.attempt, after=after, stream=stream)
    return Page(page.status, take_first_page(archived, max_bytes))


def read_live_page(execution_id: UUID, attempt: int | None, *, after: int, stream: str | None, max_bytes: int) -> Page:
    """Like `read_page`, but without the archive."""
    # Status first: a page with `ended` then holds everything that the attempt wrote before it ended.
    status = read_log_status(execution_id, attempt)
    return Page(status, _read_after(execution_id, status, after, stream, max_bytes))


def read_tail(
    execution_id: UUID,
    attempt: int | None,
    *,
    before: int = BEYOND_LAST_SEQUENCE,
    stream: str | None = None,
    max_bytes: int,
) -> Page:
    """Return the chunks before a sequence (default: the end of the log)."""
    status = read_log_status(execution_id, attempt)
    parameters = {"before": before, "stream": stream, "max_bytes": max_bytes}
    chunks = _read("read_log_before", execution_id, status, parameters)
    if not chunks and status.ended:
        archived = read_archived(execution_id, status.attempt, stream=stream)
        chunks = _take_last_page(takewhile(lambda chunk: chunk.sequence < before, archived), max_bytes)
    return Page(status, chunks)


def await_page(
    execution_id: UUID, attempt: int | None, *, after: int = -1, stream: str | None = None, seconds: float
) -> Steps[Page]:
    """Like `read_page`, but wait for the next chunk or the attempt's end, at most `seconds`."""
    read = partial(read_page, execution_id, attempt, after=after, stream=stream)
    return (yield from await_change(execution_id, read, _has_news, seconds=seconds))


def _has_news(page: Page) -> bool:
    return bool(page.chunks) or page.status.ended


def read_log_status(execution_id: UUID, attempt: int | None) -> LogStatus:
    found = sql.fetch(
        "read_log_status",
        {"execution_id": execution_id, "attempt": attempt},
        LogStatus,
        timeout_seconds=STATEMENT_TIMEOUT_SECONDS,
    )
    if not found:
        raise NotFound
    return found[0]


def _read_after(execution_id: UUID, status: LogStatus, after: int, stream: str | None, max_bytes: int) -> list[Chunk]:
    return _read("read_log_after", execution_id, status, {"after": after, "stream": stream, "max_bytes": max_bytes})


def take_first_page(chunks: Iterable[Chunk], max_bytes: int) -> list[Chunk]:
    """Consume one page of chunks, cut where the SQL would cut it."""
    page, size = list[Chunk](), 0
    for chunk in chunks:
        page.append(chunk)
        size += len(chunk.data)
        if size >= max_bytes or len(page) == PAGE_CHUNKS:
            break
    return page


def _take_last_page(chunks: Iterable[Chunk], max_bytes: int) -> list[Chunk]:
    page, size = deque[Chunk](), 0
    for chunk in chunks:
        page.append(chunk)
        size += len(chunk.data)
        while size - len(page[0].data) >= max_bytes or len(page) > PAGE_CHUNKS:
            size -= len(page.popleft().data)
    return list(page)


def _read(name: str, execution_id: UUID, status: LogStatus, parameters: Mapping[str, object]) -> list[Chunk]:
    if status.day is None:
        return []
    key = {"day": status.day, "execution_id": execution_id, "attempt": status.attempt, "max_chunks": PAGE_CHUNKS}
    return sql.fetch(name, {**key, **parameters}, Chunk, timeout_seconds=STATEMENT_TIMEOUT_SECONDS)
